//! What rides along with an event, from the line that asked to the line that answers.

use std::sync::{Arc, Mutex};

use capstan_hooks::InboundEvent;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::lock;

/// The line an event came with, as long as it is unanswered.
pub(super) struct PendingRequest {
    id: Option<Box<RawValue>>,
    stream: bool,
    /// Its share of what may be unanswered. It is given back with the answer; when the event is gone without one, it
    /// goes with the event.
    budget_permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl PendingRequest {
    pub(super) fn new(id: Option<Box<RawValue>>, stream: bool, share: OwnedSemaphorePermit) -> Self {
        Self { id, stream, budget_permit: Mutex::new(Some(share)) }
    }

    /// What rides along with this event, if it came from here.
    pub(super) fn from_event(event: &InboundEvent) -> Option<Arc<Self>> {
        event.extensions().get()
    }

    /// What the caller correlates by.
    pub(super) fn id(&self) -> Option<&RawValue> {
        self.id.as_deref()
    }

    /// Whether stream events were asked for.
    pub(super) fn wants_stream(&self) -> bool {
        self.stream
    }

    /// Another line may take its place.
    pub(super) fn release(&self) {
        lock(&self.budget_permit).take();
    }
}
