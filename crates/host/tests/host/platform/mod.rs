//! Channel with two platform actions besides sending messages.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway, PlatformAction};
use capstan_protocol::{ActionSpec, ChannelName, Event, OutboundMessage};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;

type ActionHandler = dyn Fn(&PlatformAction) -> BoxFuture<'static, Result<Value, ChannelError>> + Send + Sync;

/// Group chat in which messages can be deleted and members muted. Records each requested action.
pub struct GroupChannel {
    handler: Box<ActionHandler>,
    requested_actions: Mutex<Vec<PlatformAction>>,
    stopped: Notify,
}

impl GroupChannel {
    /// Group chat in which every action succeeds.
    pub fn new() -> Arc<Self> {
        Self::with_handler(|_| Box::pin(async { Ok(json!({"ok": true})) }))
    }

    /// Group chat whose actions are answered by `handler`.
    pub fn with_handler(
        handler: impl Fn(&PlatformAction) -> BoxFuture<'static, Result<Value, ChannelError>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { handler: Box::new(handler), requested_actions: Mutex::default(), stopped: Notify::new() })
    }

    /// Message in the group chat.
    pub fn message(text: &str) -> Event {
        Event::message("group", "1", text)
    }

    /// Requested actions, in order, repetitions included.
    pub fn requested_actions(&self) -> Vec<PlatformAction> {
        self.requested_actions.lock().unwrap().clone()
    }
}

#[async_trait]
impl Channel for GroupChannel {
    fn name(&self) -> ChannelName {
        "group".into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities::default()
    }

    fn actions(&self) -> Vec<ActionSpec> {
        let delete = json!({
            "type": "object", "properties": {"message_id": {"type": "string"}}, "required": ["message_id"],
        });
        let mute = json!({"type": "object", "properties": {"minutes": {"type": "integer", "minimum": 1}}});
        vec![
            ActionSpec::new("message.delete", "Deletes a message.", delete),
            ActionSpec::new("member.mute", "Mutes the subject of the event.", mute),
        ]
    }

    async fn start(&self, _: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        self.stopped.notified().await;
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        self.stopped.notify_one();
        Ok(())
    }

    async fn send(&self, _: &OutboundMessage) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn perform_action(&self, action: &PlatformAction) -> Result<Value, ChannelError> {
        self.requested_actions.lock().unwrap().push(action.clone());
        (self.handler)(action).await
    }
}
