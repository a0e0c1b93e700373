//! Events of this process that no session actor serves any more.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::EventKey;

/// Accepted events that this process owns and that no session actor serves any more: their turn lost its lease, or their
/// acceptance panicked. They are recovered like those of a dead process. Cheap to clone.
#[derive(Debug, Default, Clone)]
pub(crate) struct UnservedEvents(Arc<Mutex<HashSet<EventKey>>>);

impl UnservedEvents {
    /// Records an event.
    pub(crate) fn insert(&self, key: EventKey) {
        self.lock().insert(key);
    }

    /// Removes an event that is settled, or served again.
    pub(crate) fn remove(&self, key: &EventKey) {
        self.lock().remove(key);
    }

    /// Returns true if there are no such events.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns true if no session actor of this process serves the event.
    pub(crate) fn contains(&self, key: &EventKey) -> bool {
        self.lock().contains(key)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<EventKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
