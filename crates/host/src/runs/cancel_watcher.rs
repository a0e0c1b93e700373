//! Runs that another process wants to end.

use std::sync::Arc;
use std::time::Duration;

use capstan_tape::StoreError;

use crate::engine::Engine;

/// How often the store is asked for such wishes while runs go on.
const CANCEL_WATCH_INTERVAL: Duration = Duration::from_millis(500);

impl Engine {
    /// Ends the runs of this process that somebody asked to end, until the host stops.
    pub(crate) async fn watch_cancellations(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CANCEL_WATCH_INTERVAL) => {}
                () = self.stop_token.cancelled() => return,
            }
            if self.services.runs.is_empty() {
                continue;
            }
            if let Err(error) = self.cancel_requested_runs().await {
                tracing::warn!(%error, "wishes to cancel a run could not be read");
            }
        }
    }

    async fn cancel_requested_runs(&self) -> Result<(), StoreError> {
        let mut runs = self.services.tapes.store().open_runs();
        while let Some(run) = runs.next().await? {
            if run.cancel_requested {
                self.services.runs.cancel(&run.run_id);
            }
        }
        Ok(())
    }
}
