//! Registry of the turns of this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::TapeName;
use tokio_util::sync::CancellationToken;

/// Running turns of this process, one for each session, with the tokens that cancel them. Cheap to clone.
#[derive(Debug, Default, Clone)]
pub(crate) struct RunningTurns(Arc<Mutex<HashMap<TapeName, CancellationToken>>>);

/// Registration of a running turn, until it is dropped.
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
    pub(crate) fn register(&self, tape: &TapeName, cancel_token: CancellationToken) -> RunningTurnGuard {
        self.lock().insert(tape.clone(), cancel_token);
        RunningTurnGuard { turns: self.clone(), tape: tape.clone() }
    }

    /// Cancels the turn of a session. Returns true if one was running.
    pub(crate) fn cancel(&self, tape: &TapeName) -> bool {
        self.lock().get(tape).inspect(|cancel_token| cancel_token.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TapeName, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
