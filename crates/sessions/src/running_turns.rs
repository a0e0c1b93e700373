//! Registry of the turns of this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::TapeName;
use tokio_util::sync::CancellationToken;

/// The turns that go on in this process, one for each session, and how to end them.
#[derive(Debug, Default, Clone)]
pub(crate) struct RunningTurns(Arc<Mutex<HashMap<TapeName, CancellationToken>>>);

/// A turn that goes on until this is dropped.
#[derive(Debug)]
pub(crate) struct RunningTurnGuard {
    turns: RunningTurns,
    tape: TapeName,
}

impl Drop for RunningTurnGuard {
    fn drop(&mut self) {
        self.turns.lock().remove(&self.tape);
    }
}

impl RunningTurns {
    pub(crate) fn register(&self, tape: &TapeName, cancelled: CancellationToken) -> RunningTurnGuard {
        self.lock().insert(tape.clone(), cancelled);
        RunningTurnGuard { turns: self.clone(), tape: tape.clone() }
    }

    pub(crate) fn cancel(&self, tape: &TapeName) -> bool {
        self.lock().get(tape).inspect(|cancelled| cancelled.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TapeName, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
