//! Steering: messages that arrive during a run and that the run may ingest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_hooks::InboundEvent;
use capstan_protocol::{Binding, EventKey, SessionId};
use tokio::sync::OwnedSemaphorePermit;

/// Events offered to a run, and the events that it ingested.
#[derive(Debug, Default)]
pub struct Steering(Mutex<SteeringState>);

#[derive(Debug, Default)]
struct SteeringState {
    offered: Vec<(OfferedEvent, Option<OwnedSemaphorePermit>)>,
    ingested: Vec<EventKey>,
    is_over: bool,
}

/// An event that is offered to a run.
#[derive(Debug, Clone)]
pub struct OfferedEvent {
    /// The event.
    pub inbound: InboundEvent,
    /// Its key.
    pub key: EventKey,
    /// Its session.
    pub session: SessionId,
    /// Binding that came with the event.
    pub own_binding: Option<Arc<Binding>>,
}

/// Result of steering, when the run is over.
#[derive(Debug)]
pub struct SteeringOutcome {
    /// Events that the run ingested.
    pub ingested: Vec<EventKey>,
    /// Events that it did not ingest, with the queue slots they were offered with.
    pub remaining: Vec<(EventKey, Option<OwnedSemaphorePermit>)>,
}

impl Steering {
    /// Offers an event to the run. Its queue slot is freed when the run ingests it; when the run is over, the slot is
    /// returned in the error.
    pub fn offer(
        &self,
        event: OfferedEvent,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Option<OwnedSemaphorePermit>> {
        let mut state = self.lock();
        if state.is_over {
            return Err(slot);
        }
        state.offered.push((event, slot));
        Ok(())
    }

    /// First event that was offered and not ingested yet. It stays offered until it is ingested, so an interrupted run
    /// loses no event.
    pub(crate) fn next_offered(&self) -> Option<OfferedEvent> {
        self.lock().offered.first().map(|(event, _)| event.clone())
    }

    /// Marks an event as ingested. Returns false if another caller ingested it already or the run is over.
    pub(crate) fn ingest(&self, key: &EventKey) -> bool {
        let mut state = self.lock();
        let Some(position) = state.offered.iter().position(|(event, _)| event.key == *key) else { return false };
        let (event, _slot) = state.offered.remove(position);
        state.ingested.push(event.key);
        true
    }

    /// Ends steering: the run is over.
    pub fn close(&self) -> SteeringOutcome {
        let mut state = self.lock();
        state.is_over = true;
        let remaining = std::mem::take(&mut state.offered).into_iter().map(|(event, slot)| (event.key, slot)).collect();
        SteeringOutcome { ingested: std::mem::take(&mut state.ingested), remaining }
    }

    fn lock(&self) -> MutexGuard<'_, SteeringState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_hooks::InboundEvent;
    use capstan_protocol::{Event, EventKey};
    use tokio::sync::Semaphore;

    use super::{OfferedEvent, Steering};

    fn offered_event(text: &str) -> OfferedEvent {
        let inbound = InboundEvent::new(Event::message("phone", "1", text));
        let (key, session) = (EventKey::from(&*inbound), inbound.fallback_session());
        OfferedEvent { inbound, key, session, own_binding: None }
    }

    #[test]
    fn a09_an_ingested_event_frees_its_queue_slot() {
        let slots = Arc::new(Semaphore::new(1));
        let steering = Steering::default();
        let event = offered_event("wait");
        let slot = Arc::clone(&slots).try_acquire_owned().unwrap();
        steering.offer(event.clone(), Some(slot)).unwrap();
        assert_eq!(slots.available_permits(), 0, "an offered event keeps its slot");
        assert!(steering.ingest(&event.key));
        assert_eq!(slots.available_permits(), 1);
        assert!(!steering.ingest(&event.key), "an event is ingested once");
    }

    #[test]
    fn a09_events_that_a_run_does_not_ingest_are_returned_with_their_slots() {
        let slots = Arc::new(Semaphore::new(3));
        let acquire = || Some(Arc::clone(&slots).try_acquire_owned().unwrap());
        let steering = Steering::default();
        let (first, second) = (offered_event("first"), offered_event("second"));
        steering.offer(first.clone(), acquire()).unwrap();
        steering.offer(second.clone(), acquire()).unwrap();
        assert!(steering.ingest(&first.key));
        let outcome = steering.close();
        assert_eq!(outcome.ingested, [first.key]);
        assert!(matches!(&outcome.remaining[..], [(key, Some(_))] if *key == second.key));
        assert_eq!(slots.available_permits(), 2, "the second event still waits");
        let slot = steering.offer(offered_event("late"), acquire()).unwrap_err();
        assert!(slot.is_some(), "steering that is closed returns the slot");
    }
}
