//! Channels: connections to the platforms on which people write.

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

/// Connection to a platform: submits its events to the host and sends the replies.
///
/// # Example
///
/// The same code is in `docs/plugins.md`.
///
/// ```
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway};
/// use capstan_hooks::points::ProvideChannels;
/// use capstan_hooks::{BoxError, HookRegistrar, InboundEvent, Plugin};
/// use capstan_protocol::{ChannelName, Event, OutboundMessage};
/// use tokio::sync::{Mutex, mpsc, oneshot};
/// use tokio_util::sync::CancellationToken;
///
/// /// Message of the platform, which sends it again unless it was accepted.
/// struct PlatformMessage {
///     id: String,
///     chat: String,
///     text: String,
///     accepted: oneshot::Sender<bool>,
/// }
///
/// /// Channel between two queues, which stand for the client of a platform.
/// struct QueueChannel {
///     incoming: Mutex<mpsc::Receiver<PlatformMessage>>,
///     outgoing: mpsc::Sender<(String, String)>,
///     stop_token: CancellationToken,
/// }
///
/// #[async_trait]
/// impl Channel for QueueChannel {
///     fn name(&self) -> ChannelName {
///         "queue".into()
///     }
///
///     fn capabilities(&self) -> ChannelCapabilities {
///         ChannelCapabilities::default()
///     }
///
///     async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
///         let mut incoming = self.incoming.lock().await;
///         while let Some(Some(message)) = self.stop_token.run_until_cancelled(incoming.recv()).await {
///             let PlatformMessage { id, chat, text, accepted } = message;
///             // With the platform's id, a message that arrives twice gets one turn.
///             let event = Event { event_id: id.as_str().into(), ..Event::message(self.name(), chat, text) };
///             let submitted = gateway.submit(InboundEvent::new(event)).await;
///             // The event is durable now, or was rejected.
///             let _disconnected = accepted.send(submitted.is_ok());
///         }
///         Ok(())
///     }
///
///     async fn stop(&self) -> Result<(), ChannelError> {
///         self.stop_token.cancel();
///         Ok(())
///     }
///
///     async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
///         let sent = self.outgoing.send((message.chat_id.to_string(), message.content.text())).await;
///         sent.map_err(|_| ChannelError::new(self.name(), "the platform is disconnected"))
///     }
/// }
///
/// /// Plugin that provides the channel.
/// struct QueuePlugin(Arc<QueueChannel>);
///
/// impl Plugin for QueuePlugin {
///     fn name(&self) -> &str {
///         "queue"
///     }
///
///     fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
///         let channel: Arc<dyn Channel> = self.0.clone();
///         hooks.on_sync(ProvideChannels, move || Ok(Some(vec![Arc::clone(&channel)])));
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// Name of the channel.
    fn name(&self) -> ChannelName;

    /// Capabilities of the channel.
    fn capabilities(&self) -> ChannelCapabilities;

    /// Actions on the platform other than sending messages. Called once, when the host starts.
    fn actions(&self) -> Vec<ActionSpec> {
        Vec::new()
    }

    /// Default intake options for events of this channel. The configuration and the binding may override them.
    fn intake_options(&self) -> IntakeOptions {
        IntakeOptions::default()
    }

    /// Listens and submits events to the gateway until the channel is stopped. A channel that only sends returns at
    /// once.
    async fn start(&self, gateway: Arc<dyn Gateway>) -> Result<(), ChannelError>;

    /// Stops listening: submits no further events, and lets [`start`](Self::start) return once the submitted ones are
    /// answered. A host that must exit does not wait for that.
    async fn stop(&self) -> Result<(), ChannelError>;

    /// Sends a final message. A message that may have been sent before is marked with
    /// [`OutboundMessage::is_possible_duplicate`].
    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError>;

    /// Replies to a waiting caller, once for each of its events, whatever the outcome. Only called for a channel
    /// [with waiting callers](ChannelCapabilities::has_waiting_callers).
    ///
    /// May take as long as the caller takes to read the reply, and fails when the caller has disconnected, which only
    /// the channel can detect. A host that must exit drops the future: a reply that is not delivered by then must not
    /// be delivered later.
    async fn reply(&self, reply: &ChannelReply) -> Result<(), ChannelError> {
        for message in &reply.messages {
            self.send(message).await?;
        }
        Ok(())
    }

    /// Notifies a waiting caller that the outcome of its event cannot be recorded for now, for example because the disk
    /// is full. The event is stored, and its [reply](Self::reply) follows later. Called once for each event.
    async fn notify_delayed(&self, event: &InboundEvent, cause: &IntakeError) -> Result<(), ChannelError> {
        let _ = (event, cause);
        Ok(())
    }

    /// Receives stream events while the model stage is running. `message` is the event that the turn serves.
    async fn on_stream_event(&self, event: &StreamEvent, message: &InboundEvent) -> Result<(), ChannelError> {
        let _ = (event, message);
        Ok(())
    }

    /// Performs one of the channel's [actions](Self::actions) and returns the response of the platform.
    ///
    /// Called at most once for each action: a failed action is not retried. If the connection broke before the platform
    /// responded, the error should say that the effect is unknown ([`ChannelErrorKind::Unknown`]). A host that stops
    /// waiting drops the future.
    async fn perform_action(&self, action: &PlatformAction) -> Result<Value, ChannelError> {
        Err(ChannelError::permanent(self.name(), format!("no such action: {}", action.name)))
    }
}

/// Action that a run requests on the platform.
#[derive(Debug, Clone, PartialEq)]
pub struct PlatformAction {
    /// Unique id of the action on the tape; usable as an idempotency key where the platform supports one.
    pub id: ActionId,
    /// Name of the action, from [`Channel::actions`].
    pub name: String,
    /// Arguments, valid for the schema of the action.
    pub arguments: JsonObject,
    /// Event that the run serves; identifies the conversation.
    pub event: Event,
}

/// Capabilities of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelCapabilities {
    /// The channel gets [stream events](Channel::on_stream_event); `false` turns them off. True by default, so that an
    /// implementation of that method is always called.
    pub streaming: bool,
    /// The sender of a message waits for the reply on a connection that ends with the process. A reply that could not
    /// be delivered on it is stored and returned when the same event is submitted again.
    pub has_waiting_callers: bool,
    /// The channel sends images and files, which are parts of the content: `image_url`, and `file` with a `data:` URL.
    /// Other channels get a line of text that names the file instead.
    pub media: bool,
}

impl Default for ChannelCapabilities {
    fn default() -> Self {
        Self { streaming: true, has_waiting_callers: false, media: false }
    }
}

/// Intake of events from a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IntakeOptions {
    /// Treatment of a message that arrives while a turn is running.
    pub admission: Option<AdmissionMode>,
    /// Debouncing of messages before a turn begins.
    pub debounce: Option<DebounceOptions>,
}

/// Debouncing: messages in quick succession become one turn. Commands are never delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebounceOptions {
    /// Time without a further message before the turn begins.
    pub quiet_period: Duration,
    /// Maximum delay of the first message.
    pub max_wait: Duration,
    /// Time after a message to the bot during which unaddressed messages count as part of the conversation. Outside of
    /// this window they are dropped. `None`: every message is accepted.
    pub active_window: Option<Duration>,
}

/// Outcome of an event, for a waiting caller.
#[derive(Debug, Clone)]
pub struct ChannelReply {
    /// The event, with the runtime objects that the channel attached.
    pub event: InboundEvent,
    /// Session of the event.
    pub session: SessionId,
    /// Outcome of the event.
    pub outcome: Outcome,
    /// Run that settled the event, if any.
    pub run_id: Option<RunId>,
    /// Messages to be sent, in order. The outcome of a reply has their texts too.
    pub messages: Vec<OutboundMessage>,
    /// Error of the comma command that the event was, if the command failed. Its output is the reply.
    pub command_error: Option<String>,
    /// The event was accepted before; the outcome is the earlier one.
    pub is_duplicate: bool,
}

/// Intake of the host for the events of channels.
pub trait Gateway: Send + Sync + 'static {
    /// Submits an event. When the future completes, the event is durable or was rejected; its turn follows later. An
    /// event with a [reply-only caller](crate::ReplyOnlyCaller) becomes durable with its reply.
    ///
    /// Events of one conversation are accepted in the order of these calls, not in the order in which the futures
    /// progress.
    fn submit(&self, event: InboundEvent) -> BoxFuture<'static, Result<(), IntakeError>>;
}

/// Reason why an event was rejected, in which case nothing of it is stored, or why its outcome is delayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct IntakeError {
    /// Stable code with a page in the documentation.
    pub code: ErrorCode,
    /// Message for users.
    pub message: String,
}

/// Failure of a channel to send a message or to perform an action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("channel {channel}: {message}")]
pub struct ChannelError {
    /// The channel.
    pub channel: ChannelName,
    /// Description of the failure.
    pub message: String,
    /// Known effect on the platform.
    pub kind: ChannelErrorKind,
}

/// Known effect of a failed message or action on the platform. Only messages are retried, never actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelErrorKind {
    /// Not sent; can be retried.
    NotSent,
    /// Not sent, and a retry would fail too: the chat is gone, or the platform rejects the message.
    Permanent,
    /// Possibly sent: the connection broke before the platform responded.
    Unknown,
}

impl ChannelError {
    /// Creates a failure that can be retried.
    pub fn new(channel: ChannelName, message: impl Into<String>) -> Self {
        Self { channel, message: message.into(), kind: ChannelErrorKind::NotSent }
    }

    /// Creates a failure that a retry cannot resolve.
    pub fn permanent(channel: ChannelName, message: impl Into<String>) -> Self {
        Self { kind: ChannelErrorKind::Permanent, ..Self::new(channel, message) }
    }

    /// Creates a failure with an unknown effect.
    pub fn unknown(channel: ChannelName, message: impl Into<String>) -> Self {
        Self { kind: ChannelErrorKind::Unknown, ..Self::new(channel, message) }
    }
}
