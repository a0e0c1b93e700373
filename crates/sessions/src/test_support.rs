//! Fixtures for the tests of this crate.

use capstan_hooks::InboundEvent;
use capstan_protocol::{EntryId, Event};
use capstan_turn::EventArrival;

use crate::accepted_event::AcceptedEvent;

/// An event of the channel `phone` that arrives like this.
pub(crate) fn accepted_event(arrival: EventArrival) -> AcceptedEvent {
    let inbound = InboundEvent::new(Event::message("phone", "1", "hello"));
    let session = inbound.fallback_session();
    AcceptedEvent { entry: EntryId(1), ..AcceptedEvent::new(inbound, session, arrival) }
}
