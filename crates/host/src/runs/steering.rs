//! Messages on their way into a run that is going on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use capstan_hooks::Inbound;
use capstan_protocol::{EventKey, SessionId};

use crate::sessions::item::Item;

/// What is offered to a run, and what it took in.
#[derive(Debug, Default)]
pub(crate) struct Steering(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    offered: Vec<Item>,
    taken: Vec<Item>,
    is_over: bool,
}

/// An event that is offered to a run.
pub(crate) struct Offered {
    pub(crate) inbound: Inbound,
    pub(crate) key: EventKey,
    pub(crate) session: SessionId,
}

/// A run that is over: what it took in, and what it left.
pub(crate) struct Steered {
    pub(crate) taken: Vec<Item>,
    pub(crate) left: Vec<Item>,
}

impl Steering {
    /// Offers an event to the run; gives it back when the run is over.
    pub(crate) fn offer(&self, item: Item) -> Option<Item> {
        let mut state = self.lock();
        if state.is_over {
            return Some(item);
        }
        state.offered.push(item);
        None
    }

    /// What was offered first and not taken in yet. It stays offered: a run that breaks off leaves it.
    pub(crate) fn first(&self) -> Option<Offered> {
        let state = self.lock();
        let item = state.offered.first()?;
        Some(Offered { inbound: item.inbound.clone(), key: item.key.clone(), session: item.session.clone() })
    }

    /// The run takes this event in. Says whether it still can: nobody was faster, and it is not over.
    pub(crate) fn take(&self, key: &EventKey) -> bool {
        let mut state = self.lock();
        let Some(position) = state.offered.iter().position(|item| item.key == *key) else { return false };
        let mut item = state.offered.remove(position);
        // It waits no more: another may.
        item.place = None;
        state.taken.push(item);
        true
    }

    /// The run is over.
    pub(crate) fn end(&self) -> Steered {
        let mut state = self.lock();
        state.is_over = true;
        Steered { taken: std::mem::take(&mut state.taken), left: std::mem::take(&mut state.offered) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
