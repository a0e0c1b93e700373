//! A channel for tests: it keeps what it is given, and fails as it is told to.

use std::sync::Arc;

use async_trait::async_trait;
use capstan::hooks::InboundEvent;
use capstan::hooks::contracts::{
    Channel, ChannelCapabilities, ChannelError, ChannelReply, Gateway, IntakeError, IntakeOptions,
};
use capstan::protocol::{ChannelName, EventId, OutboundMessage, StreamEvent};
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// What a channel is asked to do.
pub enum ChannelRequest {
    Stop,
    Send(OutboundMessage),
    Answer(ChannelReply),
    Delayed(EventId, IntakeError),
    Show(StreamEvent),
}

/// What it does about it, where it does anything but what it should.
pub type ChannelFuture = BoxFuture<'static, Result<(), ChannelError>>;

/// Says what it does about it; nothing means what it should.
type ChannelBehaviour = dyn Fn(&ChannelRequest) -> Option<ChannelFuture> + Send + Sync;

/// A message that came through.
#[derive(Debug, Clone)]
pub struct SentMessage {
    pub message: OutboundMessage,
    pub at: Instant,
}

/// A channel for tests.
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
    /// A channel that only sends.
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

    /// A channel whose callers wait, and that shows stream events.
    pub fn with_waiting_callers(name: &'static str) -> Self {
        Self { capabilities: ChannelCapabilities { streaming: true, has_waiting_callers: true }, ..Self::new(name) }
    }

    /// The same, taking in like this.
    pub fn with_intake(self, intake: IntakeOptions) -> Self {
        Self { intake, ..self }
    }

    /// The same, doing this where it says so.
    pub fn with_behaviour(
        self,
        behaviour: impl Fn(&ChannelRequest) -> Option<ChannelFuture> + Send + Sync + 'static,
    ) -> Self {
        Self { behaviour: Box::new(behaviour), ..self }
    }

    /// What came through, as `chat: text`.
    pub fn sent(&self) -> Vec<String> {
        let line = |sent: &SentMessage| format!("{}: {}", sent.message.chat_id, sent.message.content.text());
        self.sent.borrow().iter().map(line).collect()
    }

    /// What came through.
    pub fn sent_messages(&self) -> Vec<SentMessage> {
        self.sent.borrow().clone()
    }

    /// Waits until so many messages came through.
    pub async fn wait_until_sent(&self, count: usize) {
        self.sent.subscribe().wait_for(|sent| sent.len() >= count).await.expect("the channel is there");
    }

    /// Waits for the answer to an event.
    pub async fn wait_for_answer(&self, event: &EventId) -> ChannelReply {
        let mut answers = self.answers.subscribe();
        let has_it = |answers: &Vec<ChannelReply>| answers.iter().any(|answer| answer.event.event_id == *event);
        let answers = answers.wait_for(has_it).await.expect("the channel is there");
        answers.iter().rfind(|answer| answer.event.event_id == *event).expect("it was waited for").clone()
    }

    /// Waits until so many events are said to be delayed, and gives them with why.
    pub async fn wait_until_delayed(&self, count: usize) -> Vec<(EventId, IntakeError)> {
        let mut delayed = self.delayed.subscribe();
        delayed.wait_for(|delayed| delayed.len() >= count).await.expect("the channel is there").clone()
    }

    async fn handle(&self, asked: ChannelRequest) -> Result<(), ChannelError> {
        if let Some(does) = (self.behaviour)(&asked) {
            does.await?;
        }
        match asked {
            ChannelRequest::Send(message) => {
                let sent = SentMessage { message, at: Instant::now() };
                self.sent.send_modify(|all| all.push(sent));
            }
            ChannelRequest::Answer(answer) => self.answers.send_modify(|all| all.push(answer)),
            ChannelRequest::Delayed(event, why) => self.delayed.send_modify(|all| all.push((event, why))),
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

    async fn notify_delayed(&self, event: &InboundEvent, why: &IntakeError) -> Result<(), ChannelError> {
        self.handle(ChannelRequest::Delayed(event.event_id.clone(), why.clone())).await
    }

    async fn on_stream_event(&self, event: &StreamEvent, _: &InboundEvent) -> Result<(), ChannelError> {
        self.handle(ChannelRequest::Show(event.clone())).await
    }
}
