//! A channel to a platform on which two things can be done beside talking.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use capstan::hooks::contracts::{Action, Channel, ChannelCapabilities, ChannelError, Gateway};
use capstan::hooks::points::ProvideChannels;
use capstan::hooks::{Plugin, Registrar};
use capstan::protocol::{ActionSpec, ChannelName, Event, Outbound};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::registers::Registers;

type Does = dyn Fn(&Action) -> BoxFuture<'static, Result<Value, ChannelError>> + Send + Sync;

/// A group chat, where messages can be deleted and members muted.
pub struct Group {
    does: Box<Does>,
    asked: Mutex<Vec<Action>>,
    stopped: Notify,
}

impl Group {
    /// One that does what it is asked.
    pub fn new() -> Arc<Self> {
        Self::that(|_| Box::pin(async { Ok(json!({"ok": true})) }))
    }

    /// One that does this.
    pub fn that(
        does: impl Fn(&Action) -> BoxFuture<'static, Result<Value, ChannelError>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { does: Box::new(does), asked: Mutex::default(), stopped: Notify::new() })
    }

    /// A message in it.
    pub fn message(text: &str) -> Event {
        Event::message("group", "1", text)
    }

    /// What it was asked to do, as often as it was.
    pub fn asked(&self) -> Vec<Action> {
        self.asked.lock().unwrap().clone()
    }
}

/// A plugin that provides it.
pub fn provides(group: &Arc<Group>) -> impl Plugin + use<> {
    let group = Arc::clone(group);
    Registers("group", move |hooks: &mut Registrar| {
        let group = Arc::clone(&group);
        hooks.on_sync(ProvideChannels, move || Ok(Some(vec![Arc::clone(&group) as Arc<dyn Channel>])));
    })
}

#[async_trait]
impl Channel for Group {
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

    async fn send(&self, _: &Outbound) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn act(&self, action: &Action) -> Result<Value, ChannelError> {
        self.asked.lock().unwrap().push(action.clone());
        (self.does)(action).await
    }
}
