//! Messages on their way into a run that is going on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::item::Item;

/// What is offered to a run, and what it took in.
#[derive(Debug, Default)]
pub(crate) struct Steering(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    offered: Vec<Item>,
    taken: Vec<Item>,
    is_over: bool,
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

    /// What was offered since the last time. Each is to be given back, as taken in or as left.
    pub(crate) fn take_offered(&self) -> Vec<Item> {
        std::mem::take(&mut self.lock().offered)
    }

    /// The run took this event in.
    pub(crate) fn took(&self, item: Item) {
        self.lock().taken.push(item);
    }

    /// The run could not take these in: they are the first that it leaves.
    pub(crate) fn give_back(&self, mut items: Vec<Item>) {
        let mut state = self.lock();
        items.append(&mut state.offered);
        state.offered = items;
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
