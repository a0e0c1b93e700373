//! Notice that the store delays the outcome of events: each caller hears it once. The outcome comes when it can.

use capstan_hooks::contracts::IntakeError;

use crate::HostError;
use crate::accepted_event::AcceptedEvent;
use capstan_delivery::Outbox;

/// Tells the callers of these events that the store fails: in this process, and behind a channel.
pub(crate) fn notify_delayed_callers<'a>(
    outbox: &Outbox,
    events: impl Iterator<Item = &'a mut AcceptedEvent>,
    error: &HostError,
) {
    for event in events {
        if let Some(caller) = event.caller.take() {
            // The caller may be gone.
            let _unheard = caller.send(Err(error.clone()));
        }
        if !event.is_caller_gone && !std::mem::replace(&mut event.is_delay_reported, true) {
            outbox.notify_delayed(&event.inbound, IntakeError { code: error.code(), message: error.to_string() });
        }
    }
}
