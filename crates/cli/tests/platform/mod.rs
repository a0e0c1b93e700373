//! A channel to a platform on which two things can be done beside talking.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use capstan::hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway, PlatformAction};
use capstan::hooks::points::ProvideChannels;
use capstan::hooks::{HookRegistrar, Plugin};
use capstan::protocol::{ActionSpec, ChannelName, Event, OutboundMessage};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::registers::ClosurePlugin;

type ActionHandler = dyn Fn(&PlatformAction) -> BoxFuture<'static, Result<Value, ChannelError>> + Send + Sync;

/// A group chat, where messages can be deleted and members muted.
pub struct GroupChannel {
    handler: Box<ActionHandler>,
    requested_actions: Mutex<Vec<PlatformAction>>,
    stopped: Notify,
}

impl GroupChannel {
    /// One that does what it is asked.
    pub fn new() -> Arc<Self> {
        Self::with_handler(|_| Box::pin(async { Ok(json!({"ok": true})) }))
    }

    /// One that does this.
    pub fn with_handler(
        does: impl Fn(&PlatformAction) -> BoxFuture<'static, Result<Value, ChannelError>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { handler: Box::new(does), requested_actions: Mutex::default(), stopped: Notify::new() })
    }

    /// A message in it.
    pub fn message(text: &str) -> Event {
        Event::message("group", "1", text)
    }

    /// What it was asked to do, as often as it was.
    pub fn requested_actions(&self) -> Vec<PlatformAction> {
        self.requested_actions.lock().unwrap().clone()
    }
}

/// A plugin that provides it.
pub fn group_plugin(group: &Arc<GroupChannel>) -> impl Plugin + use<> {
    let group = Arc::clone(group);
    ClosurePlugin("group", move |hooks: &mut HookRegistrar| {
        let group = Arc::clone(&group);
        hooks.on_sync(ProvideChannels, move || Ok(Some(vec![Arc::clone(&group) as Arc<dyn Channel>])));
    })
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
            ActionSpec::new("member.mute", "Mutes whoever the event is about.", mute),
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
