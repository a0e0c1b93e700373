//! Channel for tests that records its calls and fails on demand.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{
    Channel, ChannelCapabilities, ChannelError, ChannelReply, Gateway, IntakeError, IntakeOptions,
};
use capstan_protocol::{ChannelName, EventId, OutboundMessage, StreamEvent};
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Call of the host to a channel.
pub enum ChannelRequest {
    Stop,
    Send(OutboundMessage),
    Answer(ChannelReply),
    Delayed(EventId, IntakeError),
    Show(StreamEvent),
}

/// Replacement behaviour for one call, run before the call is recorded.
pub type ChannelFuture = BoxFuture<'static, Result<(), ChannelError>>;

/// Chooses the replacement behaviour for a call; `None` means success.
type ChannelBehaviour = dyn Fn(&ChannelRequest) -> Option<ChannelFuture> + Send + Sync;

/// Message that the channel sent.
#[derive(Debug, Clone)]
pub struct SentMessage {
    pub message: OutboundMessage,
    pub at: Instant,
}

/// Channel for tests.
pub struct TestChannel {
    name: &'static str,
    capabilities: ChannelCapabilities,
    intake: IntakeOptions,
    behaviour: Box<ChannelBehaviour>,
    sent: watch::Sender<Vec<SentMessage>>,
    answers: watch::Sender<Vec<ChannelReply>>,
    delayed: watch::Sender<Vec<(EventId, IntakeError)>>,
    shown: watch::Sender<Vec<StreamEvent>>,
    stopped: Notify,
}

impl TestChannel {
    /// Channel without waiting callers and without streaming.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            capabilities: ChannelCapabilities::default(),
            intake: IntakeOptions::default(),
            behaviour: Box::new(|_| None),
            sent: watch::Sender::default(),
            answers: watch::Sender::default(),
            delayed: watch::Sender::default(),
            shown: watch::Sender::default(),
            stopped: Notify::new(),
        }
    }

    /// Channel with waiting callers that shows stream events.
    pub fn with_waiting_callers(name: &'static str) -> Self {
        Self {
            capabilities: ChannelCapabilities { streaming: true, has_waiting_callers: true, media: false },
            ..Self::new(name)
        }
    }

    /// Lets the channel send images and files.
    pub fn with_media(self) -> Self {
        Self { capabilities: ChannelCapabilities { media: true, ..self.capabilities }, ..self }
    }

    /// Sets the intake options.
    pub fn with_intake(self, intake: IntakeOptions) -> Self {
        Self { intake, ..self }
    }

    /// Sets the behaviour for calls.
    pub fn with_behaviour(
        self,
        behaviour: impl Fn(&ChannelRequest) -> Option<ChannelFuture> + Send + Sync + 'static,
    ) -> Self {
        Self { behaviour: Box::new(behaviour), ..self }
    }

    /// Sent messages as `chat: text`.
    pub fn sent(&self) -> Vec<String> {
        let line = |sent: &SentMessage| format!("{}: {}", sent.message.chat_id, sent.message.content.text());
        self.sent.borrow().iter().map(line).collect()
    }

    /// Sent messages.
    pub fn sent_messages(&self) -> Vec<SentMessage> {
        self.sent.borrow().clone()
    }

    /// Stream events shown so far.
    pub fn shown(&self) -> Vec<StreamEvent> {
        self.shown.borrow().clone()
    }

    /// Waits until `count` messages were sent.
    pub async fn wait_until_sent(&self, count: usize) {
        self.sent.subscribe().wait_for(|sent| sent.len() >= count).await.expect("the channel exists");
    }

    /// Waits for the answer to an event.
    pub async fn wait_for_answer(&self, event: &EventId) -> ChannelReply {
        let mut answers = self.answers.subscribe();
        let has_answer = |answers: &Vec<ChannelReply>| answers.iter().any(|answer| answer.event.event_id == *event);
        let answers = answers.wait_for(has_answer).await.expect("the channel exists");
        answers.iter().rfind(|answer| answer.event.event_id == *event).expect("the answer arrived").clone()
    }

    /// Waits until `count` events are reported as delayed, and returns them with the reasons.
    pub async fn wait_until_delayed(&self, count: usize) -> Vec<(EventId, IntakeError)> {
        let mut delayed = self.delayed.subscribe();
        delayed.wait_for(|delayed| delayed.len() >= count).await.expect("the channel exists").clone()
    }

    async fn handle(&self, request: ChannelRequest) -> Result<(), ChannelError> {
        if let Some(behaviour) = (self.behaviour)(&request) {
            behaviour.await?;
        }
        match request {
            ChannelRequest::Send(message) => {
                let sent = SentMessage { message, at: Instant::now() };
                self.sent.send_modify(|all| all.push(sent));
            }
            ChannelRequest::Answer(answer) => self.answers.send_modify(|all| all.push(answer)),
            ChannelRequest::Delayed(event, reason) => self.delayed.send_modify(|all| all.push((event, reason))),
            ChannelRequest::Show(event) => self.shown.send_modify(|all| all.push(event)),
            ChannelRequest::Stop => self.stopped.notify_one(),
        }
        Ok(())
    }
}

#[async_trait]
impl Channel for TestChannel {
    fn name(&self) -> ChannelName {
        self.name.into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        self.capabilities
    }

    fn intake_options(&self) -> IntakeOptions {
        self.intake
    }

    async fn start(&self, _: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        self.stopped.notified().await;
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        self.handle(ChannelRequest::Stop).await
    }

    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
        self.handle(ChannelRequest::Send(message.clone())).await
    }

    async fn reply(&self, answer: &ChannelReply) -> Result<(), ChannelError> {
        self.handle(ChannelRequest::Answer(answer.clone())).await
    }

    async fn notify_delayed(&self, event: &InboundEvent, reason: &IntakeError) -> Result<(), ChannelError> {
        self.handle(ChannelRequest::Delayed(event.event_id.clone(), reason.clone())).await
    }

    async fn on_stream_event(&self, event: &StreamEvent, _: &InboundEvent) -> Result<(), ChannelError> {
        self.handle(ChannelRequest::Show(event.clone())).await
    }
}
