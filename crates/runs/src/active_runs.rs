//! Registry of the runs of this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::RunId;
use tokio_util::sync::CancellationToken;

/// Registry of the active runs of this process, with the token that cancels each. Cheap to clone.
#[derive(Debug, Default, Clone)]
pub struct ActiveRuns(Arc<Mutex<HashMap<RunId, CancellationToken>>>);

/// Registration of a run, until it is dropped: from before the run is recorded until its end is. In between, recovery
/// must not take the run for one of a dead process.
#[derive(Debug)]
pub struct ActiveRunGuard {
    runs: ActiveRuns,
    run_id: RunId,
}

impl Drop for ActiveRunGuard {
    fn drop(&mut self) {
        self.runs.lock().remove(&self.run_id);
    }
}

impl ActiveRuns {
    /// Registers a run.
    pub fn register(&self, run_id: RunId, cancel_token: CancellationToken) -> ActiveRunGuard {
        self.lock().insert(run_id.clone(), cancel_token);
        ActiveRunGuard { runs: self.clone(), run_id }
    }

    /// Returns true while the run is registered.
    pub fn contains(&self, run_id: &RunId) -> bool {
        self.lock().contains_key(run_id)
    }

    /// Returns true if no run is registered.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Cancels a run. Returns false if it is not registered.
    pub fn cancel(&self, run_id: &RunId) -> bool {
        self.lock().get(run_id).inspect(|cancel_token| cancel_token.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
