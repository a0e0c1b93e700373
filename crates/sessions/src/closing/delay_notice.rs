//! Notice that the store delays the outcome of events. Each caller gets it once; the outcome follows when the store works
//! again.

use capstan_hooks::contracts::IntakeError;

use crate::HostError;
use crate::accepted_event::AcceptedEvent;
use capstan_delivery::Outbox;

/// Notifies the callers of these events, in this process and on channels, that the store fails.
pub(crate) fn notify_delayed_callers<'a>(
    outbox: &Outbox,
    events: impl Iterator<Item = &'a mut AcceptedEvent>,
    error: &HostError,
) {
    for event in events {
        if let Some(caller) = event.caller.take() {
            // The caller may have disconnected.
            let _disconnected = caller.send(Err(error.clone()));
        }
        if !event.is_caller_disconnected && !std::mem::replace(&mut event.is_delay_reported, true) {
            outbox.notify_delayed(&event.inbound, IntakeError { code: error.code(), message: error.to_string() });
        }
    }
}
