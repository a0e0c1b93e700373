//! Cancels runs that another process asked to cancel.

use std::time::Duration;

use capstan_tape::{StoreError, TapeRepository};
use tokio_util::sync::CancellationToken;

use crate::active_runs::ActiveRuns;

/// Poll interval for cancel requests while runs are active.
const CANCEL_WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// Polls the store for cancel requests, which other processes write.
pub struct CancelWatcher {
    /// Runs of this process.
    pub active_runs: ActiveRuns,
    /// Tapes of the host.
    pub tapes: TapeRepository,
    /// Ends the watcher.
    pub stop_token: CancellationToken,
}

impl CancelWatcher {
    /// Cancels requested runs of this process until the host stops.
    pub async fn run(self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CANCEL_WATCH_INTERVAL) => {}
                () = self.stop_token.cancelled() => return,
            }
            if self.active_runs.is_empty() {
                continue;
            }
            if let Err(error) = self.cancel_requested_runs().await {
                tracing::warn!(%error, "cannot read cancel requests");
            }
        }
    }

    async fn cancel_requested_runs(&self) -> Result<(), StoreError> {
        let mut runs = self.tapes.store().open_runs();
        while let Some(run) = runs.next().await? {
            if run.cancel_requested {
                self.active_runs.cancel(&run.run_id);
            }
        }
        Ok(())
    }
}
