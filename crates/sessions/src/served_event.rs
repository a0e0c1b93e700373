//! Events as callers pass them in, and as they get them back.

use capstan_hooks::InboundEvent;
use capstan_protocol::{Binding, Event, OutboundMessage, Outcome, RunId, SessionId, Usage};
use capstan_turn::TurnError;

/// An event that is handed to the host, with the binding it comes with.
#[derive(Debug, Clone)]
pub struct IncomingEvent {
    /// The event.
    pub event: InboundEvent,
    /// Its own binding, which is recorded with it; without one the host resolves a binding.
    pub binding: Option<Binding>,
}

impl From<InboundEvent> for IncomingEvent {
    fn from(event: InboundEvent) -> Self {
        Self { event, binding: None }
    }
}

impl From<Event> for IncomingEvent {
    fn from(event: Event) -> Self {
        InboundEvent::from(event).into()
    }
}

/// What became of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedEvent {
    /// Its session.
    pub session: SessionId,
    /// The run that served it, if there was one.
    pub run_id: Option<RunId>,
    /// The output of the model stage.
    pub output: String,
    /// Everything that was sent, or was to be sent.
    pub outbounds: Vec<OutboundMessage>,
    /// What the run used, as far as known.
    pub usage: Option<Usage>,
    /// How the event ended; absent while it is still in flight elsewhere.
    pub outcome: Option<Outcome>,
    /// Why the turn failed, if it did.
    pub error: Option<TurnError>,
    /// Why messages could not be delivered, if some could not.
    pub delivery_errors: Vec<String>,
    /// It had been accepted before; this is what became of it then.
    pub is_duplicate: bool,
}

impl ServedEvent {
    /// Nothing is known yet of an event of this session.
    pub(crate) fn in_flight(session: SessionId) -> Self {
        Self {
            session,
            run_id: None,
            output: String::new(),
            outbounds: Vec::new(),
            usage: None,
            outcome: None,
            error: None,
            delivery_errors: Vec::new(),
            is_duplicate: false,
        }
    }
}
