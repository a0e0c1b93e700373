//! Whoever waits for an event hears, once, that the store keeps it from its outcome. The outcome comes when it can.

use std::sync::Arc;

use capstan_hooks::Inbound;
use capstan_hooks::contracts::Refusal;

use super::asking::{SHOW_DEADLINE, isolated};
use super::parcel::CallerGone;
use crate::HostError;
use crate::engine::Engine;
use crate::sessions::item::Item;

/// Whoever waits for this event has heard that it is delayed.
struct Delayed;

impl Engine {
    /// Tells whoever waits for these events that the store fails: in this process, and behind a channel.
    pub(crate) fn tell_delayed<'a>(&self, items: impl Iterator<Item = &'a mut Item>, error: &HostError) {
        for item in items {
            if let Some(caller) = item.caller.take() {
                // Whoever asked may have gone.
                let _unheard = caller.send(Err(error.clone()));
            }
            self.show_delayed(&item.inbound, error);
        }
    }

    /// Nobody waits until that is shown.
    fn show_delayed(&self, event: &Inbound, error: &HostError) {
        let channel = self.services.channel(&event.source).filter(|channel| channel.capabilities().caller_waits);
        let Some(channel) = channel.map(Arc::clone) else { return };
        let extensions = event.extensions();
        if extensions.get::<CallerGone>().is_some() || extensions.get::<Delayed>().is_some() {
            return;
        }
        extensions.insert(Delayed);
        let (event, why) = (event.clone(), Refusal { code: error.code(), message: error.to_string() });
        self.tasks.spawn(async move {
            if let Err((reason, _)) = isolated(channel.delayed(&event, &why), SHOW_DEADLINE).await {
                tracing::warn!(channel = %channel.name(), %reason, "a caller could not be told that the store fails");
            }
        });
    }
}
