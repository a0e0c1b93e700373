//! A channel for tests: it keeps what it is given, and fails as it is told to.

use std::sync::Arc;

use async_trait::async_trait;
use capstan::hooks::Inbound;
use capstan::hooks::contracts::{Answer, Channel, ChannelCapabilities, ChannelError, Gateway, Intake, Refusal};
use capstan::protocol::{ChannelName, EventId, Outbound, StreamEvent};
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// What a channel is asked to do.
pub enum Asked {
    Stop,
    Send(Outbound),
    Answer(Answer),
    Delayed(EventId, Refusal),
    Show(StreamEvent),
}

/// What it does about it, where it does anything but what it should.
pub type Does = BoxFuture<'static, Result<(), ChannelError>>;

/// Says what it does about it; nothing means what it should.
type Behaviour = dyn Fn(&Asked) -> Option<Does> + Send + Sync;

/// A message that came through.
#[derive(Debug, Clone)]
pub struct Sent {
    pub message: Outbound,
    pub at: Instant,
}

/// A channel for tests.
pub struct Phone {
    name: &'static str,
    capabilities: ChannelCapabilities,
    intake: Intake,
    behaviour: Box<Behaviour>,
    sent: watch::Sender<Vec<Sent>>,
    answers: watch::Sender<Vec<Answer>>,
    delayed: watch::Sender<Vec<(EventId, Refusal)>>,
    shown: watch::Sender<Vec<StreamEvent>>,
    stopped: Notify,
}

impl Phone {
    /// A channel that only sends.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            capabilities: ChannelCapabilities::default(),
            intake: Intake::default(),
            behaviour: Box::new(|_| None),
            sent: watch::Sender::default(),
            answers: watch::Sender::default(),
            delayed: watch::Sender::default(),
            shown: watch::Sender::default(),
            stopped: Notify::new(),
        }
    }

    /// A channel whose callers wait, and that shows stream events.
    pub fn desk(name: &'static str) -> Self {
        Self { capabilities: ChannelCapabilities { streaming: true, caller_waits: true }, ..Self::new(name) }
    }

    /// The same, taking in like this.
    pub fn taking_in(self, intake: Intake) -> Self {
        Self { intake, ..self }
    }

    /// The same, doing this where it says so.
    pub fn that(self, behaviour: impl Fn(&Asked) -> Option<Does> + Send + Sync + 'static) -> Self {
        Self { behaviour: Box::new(behaviour), ..self }
    }

    /// What came through, as `chat: text`.
    pub fn sent(&self) -> Vec<String> {
        let line = |sent: &Sent| format!("{}: {}", sent.message.chat_id, sent.message.content.text());
        self.sent.borrow().iter().map(line).collect()
    }

    /// What came through.
    pub fn messages(&self) -> Vec<Sent> {
        self.sent.borrow().clone()
    }

    /// Waits until so many messages came through.
    pub async fn until_sent(&self, count: usize) {
        self.sent.subscribe().wait_for(|sent| sent.len() >= count).await.expect("the channel is there");
    }

    /// Waits for the answer to an event.
    pub async fn answer_to(&self, event: &EventId) -> Answer {
        let mut answers = self.answers.subscribe();
        let has_it = |answers: &Vec<Answer>| answers.iter().any(|answer| answer.event.event_id == *event);
        let answers = answers.wait_for(has_it).await.expect("the channel is there");
        answers.iter().rfind(|answer| answer.event.event_id == *event).expect("it was waited for").clone()
    }

    /// Waits until so many events are said to be delayed, and gives them with why.
    pub async fn until_delayed(&self, count: usize) -> Vec<(EventId, Refusal)> {
        let mut delayed = self.delayed.subscribe();
        delayed.wait_for(|delayed| delayed.len() >= count).await.expect("the channel is there").clone()
    }

    async fn asked(&self, asked: Asked) -> Result<(), ChannelError> {
        if let Some(does) = (self.behaviour)(&asked) {
            does.await?;
        }
        match asked {
            Asked::Send(message) => {
                let sent = Sent { message, at: Instant::now() };
                self.sent.send_modify(|all| all.push(sent));
            }
            Asked::Answer(answer) => self.answers.send_modify(|all| all.push(answer)),
            Asked::Delayed(event, why) => self.delayed.send_modify(|all| all.push((event, why))),
            Asked::Show(event) => self.shown.send_modify(|all| all.push(event)),
            Asked::Stop => self.stopped.notify_one(),
        }
        Ok(())
    }
}

#[async_trait]
impl Channel for Phone {
    fn name(&self) -> ChannelName {
        self.name.into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        self.capabilities
    }

    fn intake(&self) -> Intake {
        self.intake
    }

    async fn start(&self, _: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        self.stopped.notified().await;
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        self.asked(Asked::Stop).await
    }

    async fn send(&self, message: &Outbound) -> Result<(), ChannelError> {
        self.asked(Asked::Send(message.clone())).await
    }

    async fn answer(&self, answer: &Answer) -> Result<(), ChannelError> {
        self.asked(Asked::Answer(answer.clone())).await
    }

    async fn delayed(&self, event: &Inbound, why: &Refusal) -> Result<(), ChannelError> {
        self.asked(Asked::Delayed(event.event_id.clone(), why.clone())).await
    }

    async fn on_event(&self, event: &StreamEvent, _: &Inbound) -> Result<(), ChannelError> {
        self.asked(Asked::Show(event.clone())).await
    }
}
