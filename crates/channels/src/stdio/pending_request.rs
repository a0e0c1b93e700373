//! Data attached to an event from its request line to its outcome line.

use std::sync::{Arc, Mutex};

use capstan_hooks::InboundEvent;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::lock;

/// Request line of an event, until it is answered.
pub(super) struct PendingRequest {
    id: Option<Box<RawValue>>,
    stream: bool,
    /// Permit from the budget of unanswered lines. Released with the outcome, or together with the event if there is none.
    budget_permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl PendingRequest {
    pub(super) fn new(id: Option<Box<RawValue>>, stream: bool, permit: OwnedSemaphorePermit) -> Self {
        Self { id, stream, budget_permit: Mutex::new(Some(permit)) }
    }

    /// Request of an event, if the event came from this channel.
    pub(super) fn from_event(event: &InboundEvent) -> Option<Arc<Self>> {
        event.extensions().get()
    }

    /// Correlation id of the caller.
    pub(super) fn id(&self) -> Option<&RawValue> {
        self.id.as_deref()
    }

    /// True if stream events were requested.
    pub(super) fn wants_stream(&self) -> bool {
        self.stream
    }

    /// Releases the permit for another line.
    pub(super) fn release(&self) {
        lock(&self.budget_permit).take();
    }
}
