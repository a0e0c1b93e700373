//! Events as callers submit them, and the results that callers get.

use capstan_hooks::InboundEvent;
use capstan_protocol::{Binding, Event, EventOrigin, OutboundMessage, Outcome, RunId, SessionId, Usage};
use capstan_turn::TurnError;

/// Event submitted to the host, with an optional binding.
#[derive(Debug, Clone)]
pub struct IncomingEvent {
    /// The event.
    pub event: InboundEvent,
    /// Origin of the event. It replaces the origin that the event itself may have.
    pub origin: EventOrigin,
    /// Binding of the event, which is recorded with it; without one the host resolves a binding.
    pub binding: Option<Binding>,
}

impl IncomingEvent {
    /// Event of the operator: typed on the terminal, or submitted by a channel that the distribution trusts.
    pub fn trusted(event: impl Into<InboundEvent>) -> Self {
        Self { origin: EventOrigin::Trusted, ..Self::from(event.into()) }
    }
}

/// Event of remote origin.
impl From<InboundEvent> for IncomingEvent {
    fn from(event: InboundEvent) -> Self {
        Self { event, origin: EventOrigin::Remote, binding: None }
    }
}

/// Event of remote origin.
impl From<Event> for IncomingEvent {
    fn from(event: Event) -> Self {
        InboundEvent::from(event).into()
    }
}

/// Result of an event for its caller.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedEvent {
    /// Session of the event.
    pub session: SessionId,
    /// Run that served the event, if there was one.
    pub run_id: Option<RunId>,
    /// Output of the model stage.
    pub output: String,
    /// Messages that were sent, or staged to be sent.
    pub outbounds: Vec<OutboundMessage>,
    /// Usage of the run, as far as known.
    pub usage: Option<Usage>,
    /// Outcome of the event; `None` while another process serves it.
    pub outcome: Option<Outcome>,
    /// Error of a failed turn.
    pub error: Option<TurnError>,
    /// Error of the comma command that the event was, if the command failed. Its output is the reply.
    pub command_error: Option<String>,
    /// Reasons of messages that could not be delivered.
    pub delivery_errors: Vec<String>,
    /// The event had been accepted before; this is the result of the first submission.
    pub is_duplicate: bool,
}

impl ServedEvent {
    /// Result of an event of this session that has no outcome yet.
    pub(crate) fn in_flight(session: SessionId) -> Self {
        Self {
            session,
            run_id: None,
            output: String::new(),
            outbounds: Vec::new(),
            usage: None,
            outcome: None,
            error: None,
            command_error: None,
            delivery_errors: Vec::new(),
            is_duplicate: false,
        }
    }
}
