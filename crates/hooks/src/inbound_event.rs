//! Event on its way through the hooks.

use std::ops::Deref;
use std::sync::Arc;

use capstan_protocol::{
    DeliveryTarget, EntryId, Event, EventInput, EventOrigin, RawPayloadRef, SessionId, Timestamp, WorkspaceId,
};

use crate::ExtensionMap;

/// Event with the runtime objects that its channel attached. Cheap to clone; dereferences to the [`Event`].
#[derive(Debug, Clone)]
pub struct InboundEvent {
    event: Arc<Event>,
    origin: EventOrigin,
    accepted_at: Option<Timestamp>,
    entry: Option<EntryId>,
    extensions: ExtensionMap,
    /// Empty for an event that gets a turn of its own.
    combined_events: Arc<[InboundEvent]>,
}

/// Separator between the texts of combined events.
const COMBINED_TEXT_SEPARATOR: &str = "\n";

/// Unmodified payload from the platform, in the extensions of an event whose channel wants it stored. The host stores
/// it with the event, which then refers to it.
///
/// A channel attaches the payload if it holds more than the event does, and otherwise saves the space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPayload(pub Vec<u8>);

/// Marker in the extensions of an event whose caller gets a reply and no acknowledgement before it. Its channel is
/// shown no stream events.
///
/// The reply is durable before it is returned, so the acceptance of the event need not be durable earlier. If the
/// outcome cannot be written and the caller is notified of a [delay](crate::contracts::Channel::notify_delayed), the
/// event is durable by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyOnlyCaller;

impl InboundEvent {
    /// Wraps an event of remote origin without runtime objects.
    pub fn new(event: Event) -> Self {
        let origin = EventOrigin::Remote;
        let (extensions, combined_events) = (ExtensionMap::new(), Arc::default());
        Self { event: Arc::new(event), origin, accepted_at: None, entry: None, extensions, combined_events }
    }

    /// Runtime objects of the event: a [`crate::TurnLifespan`], or any type that a channel and its plugin agree on.
    pub fn extensions(&self) -> &ExtensionMap {
        &self.extensions
    }

    /// Origin that the host assigned to the event.
    pub fn origin(&self) -> EventOrigin {
        self.origin
    }

    /// Copy with another origin. The host replaces the origin of every event that a channel submits.
    pub fn with_origin(&self, origin: EventOrigin) -> Self {
        Self { origin, ..self.clone() }
    }

    /// Time of acceptance. The event may have been queued since.
    pub fn accepted_at(&self) -> Option<Timestamp> {
        self.accepted_at
    }

    /// Copy with the time of acceptance set.
    pub fn with_accepted_at(&self, at: Timestamp) -> Self {
        Self { accepted_at: Some(at), ..self.clone() }
    }

    /// Entry of the tape that records the event. A message of several events has none of its own.
    pub fn entry(&self) -> Option<EntryId> {
        self.entry
    }

    /// Copy with the entry set.
    pub fn with_entry(&self, entry: EntryId) -> Self {
        Self { entry: Some(entry), ..self.clone() }
    }

    fn with_event(&self, event: Event) -> Self {
        Self { event: Arc::new(event), ..self.clone() }
    }

    /// Events that share the turn of this one, in the order of their acceptance and with this one among them. Its input
    /// joins theirs; everything else, such as the sender, is that of one of them. Empty for an event with a turn of its own.
    pub fn combined_events(&self) -> &[Self] {
        &self.combined_events
    }

    /// Copy with the inputs of these events, which share its turn, in the order of their acceptance.
    pub fn with_combined_events(&self, events: Vec<Self>) -> Self {
        let input = Self::joined_input(&events);
        let event = Event { input, ..Event::clone(&self.event) };
        // Each of the events has an entry of its own.
        Self { combined_events: events.into(), entry: None, ..self.with_event(event) }
    }

    /// Joins the inputs of several events into one.
    pub fn joined_input(events: &[Self]) -> EventInput {
        let texts: Vec<&str> = events.iter().filter_map(|event| event.input.text.as_deref()).collect();
        let text = (!texts.is_empty()).then(|| texts.join(COMBINED_TEXT_SEPARATOR));
        EventInput { text, contents: events.iter().flat_map(|event| event.input.contents.clone()).collect() }
    }

    /// Copy with a reference to the stored payload of the platform.
    pub fn with_raw_ref(&self, raw_ref: RawPayloadRef) -> Self {
        let event = Event { raw_ref: Some(raw_ref), ..Event::clone(&self.event) };
        self.with_event(event)
    }

    /// Copy with another delivery target.
    pub fn with_delivery(&self, delivery: DeliveryTarget) -> Self {
        let event = Event { delivery, ..Event::clone(&self.event) };
        self.with_event(event)
    }

    /// Copy with its resolved session and workspace.
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
