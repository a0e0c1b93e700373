//! Grace period of a cancelled run.
//!
//! A runner with the capability `interrupt` is notified of a cancellation by [`RunApi::cancel_token`] and gets
//! [`RunOptions::cancel_grace`] to yield its last results: they are recorded, and sent to no channel. Its stream is dropped
//! when it ends, and at the end of the period at the latest. Meanwhile the run API serves calls about stored state only.
//! The run ends as cancelled in any case. Runs of other runners, and runs that reach their deadline, end at once.
//!
//! [`RunApi::cancel_token`]: capstan_hooks::contracts::RunApi
//! [`RunOptions::cancel_grace`]: crate::RunOptions

use tokio::time::timeout;

use crate::run::Run;

/// Drives a cancelled run to the end of its runner's stream, or of its grace period. The outcome of the run is decided.
pub(crate) async fn wait_for_last_results(run: &Run, driving: impl Future) {
    if run.begin_grace() && timeout(run.environment.options.cancel_grace, driving).await.is_err() {
        tracing::info!(run_id = %run.id(), "the runner did not end within its grace period");
    }
}
