//! An event on its way through the hooks.

use std::ops::Deref;
use std::sync::Arc;

use capstan_protocol::{DeliveryTarget, Event, EventInput, RawPayloadRef, SessionId, Timestamp, WorkspaceId};

use crate::ExtensionMap;

/// An event with the runtime objects that ride along. Cheap to clone; reads as the [`Event`].
#[derive(Debug, Clone)]
pub struct InboundEvent {
    event: Arc<Event>,
    accepted_at: Option<Timestamp>,
    extensions: ExtensionMap,
}

/// What the platform sent, as it came: in the extensions of an event whose channel wants it kept. The host stores it
/// with the event, which then refers to it.
///
/// A channel hands it in where it says more than the event does, and otherwise saves the room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPayload(pub Vec<u8>);

/// In the extensions of an event whose sender hears nothing of it before its answer, not even that it was accepted. The
/// answer is on disk before it is given; that the event was accepted need not be on disk before that. Where its end cannot be
/// written and it hears that it is [delayed](crate::contracts::Channel::delayed), the disk has it by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyOnlyCaller;

impl InboundEvent {
    /// An event that carries nothing else.
    pub fn new(event: Event) -> Self {
        Self { event: Arc::new(event), accepted_at: None, extensions: ExtensionMap::new() }
    }

    /// The runtime objects that ride along: a [`crate::Lifespan`], or whatever a channel and its plugin agree on.
    pub fn extensions(&self) -> &ExtensionMap {
        &self.extensions
    }

    /// Time of acceptance. The event may have waited since.
    pub fn accepted_at(&self) -> Option<Timestamp> {
        self.accepted_at
    }

    /// The same event, accepted at this time.
    pub fn with_accepted_at(&self, at: Timestamp) -> Self {
        Self { accepted_at: Some(at), ..self.clone() }
    }

    fn with_event(&self, event: Event) -> Self {
        Self { event: Arc::new(event), ..self.clone() }
    }

    /// The same event with something else said.
    pub fn with_input(&self, input: EventInput) -> Self {
        let event = Event { input, ..Event::clone(&self.event) };
        self.with_event(event)
    }

    /// The same event with a reference to what the platform sent.
    pub fn with_raw_ref(&self, raw_ref: RawPayloadRef) -> Self {
        let event = Event { raw_ref: Some(raw_ref), ..Event::clone(&self.event) };
        self.with_event(event)
    }

    /// The same event with its answer going elsewhere.
    pub fn with_delivery(&self, delivery: DeliveryTarget) -> Self {
        let event = Event { delivery, ..Event::clone(&self.event) };
        self.with_event(event)
    }

    /// The same event with its resolved session written to it, and the workspace it belongs to.
    pub fn with_session(&self, session: SessionId, workspace: WorkspaceId) -> Self {
        let (session_id, workspace_id) = (Some(session), Some(workspace));
        let event = Event { session_id, workspace_id, ..Event::clone(&self.event) };
        self.with_event(event)
    }
}

impl Deref for InboundEvent {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

impl From<Event> for InboundEvent {
    fn from(event: Event) -> Self {
        Self::new(event)
    }
}
