//! Channels: where people are.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capstan_protocol::{
    ActionId, ActionSpec, AdmissionMode, ChannelName, ErrorCode, Event, JsonObject, OutboundMessage, Outcome, RunId,
    SessionId, StreamEvent,
};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::InboundEvent;

/// A way in and out of the host.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> ChannelName;

    /// What it can do.
    fn capabilities(&self) -> ChannelCapabilities;

    /// What it can do on its platform beside sending messages. Asked once, when the host starts.
    fn actions(&self) -> Vec<ActionSpec> {
        Vec::new()
    }

    /// How it wants what it hears taken in. The configuration and the binding may say otherwise.
    fn intake_options(&self) -> IntakeOptions {
        IntakeOptions::default()
    }

    /// Begins to listen and hands what it hears to the gateway, until it is stopped. One that only sends returns at once.
    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError>;

    /// Stops listening: takes nothing more, and lets [`start`](Self::start) return when what it took is answered. A host
    /// that must end does not wait for that.
    async fn stop(&self) -> Result<(), ChannelError>;

    /// Sends a final message. A message that may have been sent before says so ([`Outbound::is_possible_duplicate`]).
    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError>;

    /// Answers a caller that waits, once for each of its events, whatever became of it. Only asked of a channel whose
    /// [callers wait](ChannelCapabilities::caller_waits).
    ///
    /// It may take as long as the caller takes; it fails when the caller is gone, which only the channel can know. A host
    /// that must end drops the future: what was not given away by then must not be given away later.
    async fn reply(&self, answer: &ChannelReply) -> Result<(), ChannelError> {
        for message in &answer.messages {
            self.send(message).await?;
        }
        Ok(())
    }

    /// Is told that what became of the event of a caller that waits cannot be recorded for now, as on a full disk, and why.
    /// The event is kept, and its [answer](Self::answer) comes when there is one. It is told once for each event.
    async fn notify_delayed(&self, event: &InboundEvent, why: &IntakeError) -> Result<(), ChannelError> {
        let _ = (event, why);
        Ok(())
    }

    /// Is told what happens while the model stage is still running. `message` is the inbound the turn serves.
    async fn on_stream_event(&self, event: &StreamEvent, message: &InboundEvent) -> Result<(), ChannelError> {
        let _ = (event, message);
        Ok(())
    }

    /// Does one of its [actions](Self::actions), and gives what the platform said.
    ///
    /// It is asked once for each action, whatever becomes of it: one that fails is not tried again, and of one that broke
    /// off nobody knows whether it was done, which the error should say ([`Fate::Unknown`]). A host that waits no longer
    /// drops the future.
    async fn perform_action(&self, action: &PlatformAction) -> Result<Value, ChannelError> {
        Err(ChannelError::permanent(self.name(), format!("it has no action {}", action.name)))
    }
}

/// Something that a run wants done on the platform.
#[derive(Debug, Clone, PartialEq)]
pub struct PlatformAction {
    /// What names it on the tape. No other action has the same: a platform that knows such keys may be given it.
    pub id: ActionId,
    /// What is to be done, as the channel calls it.
    pub name: String,
    /// With what; it fits the schema that the channel gave.
    pub arguments: JsonObject,
    /// The event that the run serves: it says in which conversation.
    pub event: Event,
}

/// What a channel can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChannelCapabilities {
    /// It shows stream events; others are only sent final messages.
    pub streaming: bool,
    /// Whoever sent a message waits for its answer, on a connection that ends with the process. What could not be
    /// answered while it was there is nobody else's: it is kept, and given to whoever sends the same event again.
    pub has_waiting_callers: bool,
}

/// How what a channel hears is taken in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IntakeOptions {
    /// What a message does that comes while a turn is going on.
    pub admission: Option<AdmissionMode>,
    /// Whether messages are collected for a while before a turn begins.
    pub debounce: Option<DebounceOptions>,
}

/// Messages that follow one another closely become one turn. Commands are never held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebounceOptions {
    /// How long nobody may say anything before the turn begins.
    pub quiet_period: Duration,
    /// How long the first message waits at most.
    pub max_wait: Duration,
    /// How long after a message that was addressed to the bot others are taken for part of the conversation. One that
    /// is not addressed to it is let go outside that time. Absent: every message is taken.
    pub active_window: Option<Duration>,
}

/// What became of the event of a caller that waits.
#[derive(Debug, Clone)]
pub struct ChannelReply {
    /// The event, with whatever the channel let ride along.
    pub event: InboundEvent,
    /// Its session.
    pub session: SessionId,
    /// How it ended.
    pub outcome: Outcome,
    /// The run that ended it, if there was one.
    pub run_id: Option<RunId>,
    /// The messages to be sent, in order. The outcome of a reply has their texts too.
    pub messages: Vec<OutboundMessage>,
    /// The event had been accepted before: this is what became of it then.
    pub is_duplicate: bool,
}

/// Where a channel hands what it hears.
pub trait Gateway: Send + Sync + 'static {
    /// Takes an event in. When the future is done, the event is durable or was refused; its turn comes later. One whose
    /// sender [hears only the answer](crate::HearsOnlyAnswer) is durable with that.
    ///
    /// Events of one conversation are accepted in the order of these calls, not of the futures' progress.
    fn submit(&self, event: InboundEvent) -> BoxFuture<'static, Result<(), IntakeError>>;
}

/// Why an event was not accepted: nothing of it was kept. Or why it waits for its outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct IntakeError {
    /// The stable code, which has a page in the documentation.
    pub code: ErrorCode,
    /// What happened, fit to be shown.
    pub message: String,
}

/// Why a channel could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("channel {channel}: {message}")]
pub struct ChannelError {
    /// The channel.
    pub channel: ChannelName,
    /// What happened.
    pub message: String,
    /// What is known about the message that was to be sent, or the action that was to be done.
    pub kind: ChannelErrorKind,
}

/// What is known about a message that a channel could not send, or an action that it could not do. An action is never
/// tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelErrorKind {
    /// It was not sent; it can be tried again.
    NotSent,
    /// It was not sent and never will be: the chat is gone, the platform does not take it.
    Permanent,
    /// It may have been sent: the connection broke before the platform had answered.
    Unknown,
}

impl ChannelError {
    /// A failure after which it can be tried again.
    pub fn new(channel: ChannelName, message: impl Into<String>) -> Self {
        Self { channel, message: message.into(), kind: ChannelErrorKind::NotSent }
    }

    /// A failure that will not go away.
    pub fn permanent(channel: ChannelName, message: impl Into<String>) -> Self {
        Self { kind: ChannelErrorKind::Permanent, ..Self::new(channel, message) }
    }

    /// A failure that leaves it open whether the message was sent.
    pub fn unknown(channel: ChannelName, message: impl Into<String>) -> Self {
        Self { kind: ChannelErrorKind::Unknown, ..Self::new(channel, message) }
    }
}
