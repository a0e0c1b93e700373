//! Messages on their way into a run that is going on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_hooks::InboundEvent;
use capstan_protocol::{Binding, EventKey, SessionId};

use crate::sessions::accepted_event::AcceptedEvent;

/// What is offered to a run, and what it took in.
#[derive(Debug, Default)]
pub(crate) struct Steering(Mutex<SteeringState>);

#[derive(Debug, Default)]
struct SteeringState {
    offered: Vec<AcceptedEvent>,
    ingested: Vec<AcceptedEvent>,
    is_over: bool,
}

/// An event that is offered to a run.
pub(crate) struct OfferedEvent {
    pub(crate) inbound: InboundEvent,
    pub(crate) key: EventKey,
    pub(crate) session: SessionId,
    /// Binding that came with the event.
    pub(crate) own_binding: Option<Arc<Binding>>,
}

/// A run that is over: what it took in, and what it left.
pub(crate) struct SteeringOutcome {
    pub(crate) ingested: Vec<AcceptedEvent>,
    pub(crate) remaining: Vec<AcceptedEvent>,
}

impl Steering {
    /// Offers an event to the run; gives it back when the run is over.
    pub(crate) fn offer(&self, item: AcceptedEvent) -> Option<AcceptedEvent> {
        let mut state = self.lock();
        if state.is_over {
            return Some(item);
        }
        state.offered.push(item);
        None
    }

    /// What was offered first and not taken in yet. It stays offered: a run that breaks off leaves it.
    pub(crate) fn next_offered(&self) -> Option<OfferedEvent> {
        let state = self.lock();
        let item = state.offered.first()?;
        Some(OfferedEvent {
            inbound: item.inbound.clone(),
            key: item.key.clone(),
            session: item.session.clone(),
            own_binding: item.own_binding.clone(),
        })
    }

    /// The run takes this event in. Says whether it still can: nobody was faster, and it is not over.
    pub(crate) fn ingest(&self, key: &EventKey) -> bool {
        let mut state = self.lock();
        let Some(position) = state.offered.iter().position(|item| item.key == *key) else { return false };
        let mut item = state.offered.remove(position);
        // It waits no more: another may.
        item.slot = None;
        state.ingested.push(item);
        true
    }

    /// The run is over.
    pub(crate) fn close(&self) -> SteeringOutcome {
        let mut state = self.lock();
        state.is_over = true;
        SteeringOutcome { ingested: std::mem::take(&mut state.ingested), remaining: std::mem::take(&mut state.offered) }
    }

    fn lock(&self) -> MutexGuard<'_, SteeringState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
