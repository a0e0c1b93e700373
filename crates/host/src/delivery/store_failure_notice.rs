//! Whoever waits for an event hears, once, that the store keeps it from its outcome. The outcome comes when it can.

use std::sync::Arc;

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::IntakeError;

use super::isolated_channel::{STREAM_EVENT_TIMEOUT, call_with_deadline};
use crate::HostError;
use crate::engine::Engine;
use crate::sessions::accepted_event::AcceptedEvent;

impl Engine {
    /// Tells whoever waits for these events that the store fails: in this process, and behind a channel.
    pub(crate) fn notify_delayed_callers<'a>(
        &self,
        items: impl Iterator<Item = &'a mut AcceptedEvent>,
        error: &HostError,
    ) {
        for item in items {
            if let Some(caller) = item.caller.take() {
                // Whoever asked may have gone.
                let _unheard = caller.send(Err(error.clone()));
            }
            if !item.is_caller_gone && !std::mem::replace(&mut item.is_delay_reported, true) {
                self.notify_delayed_channel(&item.inbound, error);
            }
        }
    }

    /// Nobody waits until that is shown.
    fn notify_delayed_channel(&self, event: &InboundEvent, error: &HostError) {
        let channel = self.services.channel(&event.source).filter(|channel| channel.capabilities().has_waiting_callers);
        let Some(channel) = channel.map(Arc::clone) else { return };
        let (event, why) = (event.clone(), IntakeError { code: error.code(), message: error.to_string() });
        self.tasks.spawn(async move {
            if let Err((reason, _)) =
                call_with_deadline(channel.notify_delayed(&event, &why), STREAM_EVENT_TIMEOUT).await
            {
                tracing::warn!(channel = %channel.name(), %reason, "a caller could not be told that the store fails");
            }
        });
    }
}
