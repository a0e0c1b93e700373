//! `capstan runs cancel`.

use std::time::{Duration, Instant};

use capstan_host::ProcessLiveness;
use capstan_protocol::{ErrorCode, Timestamp};
use capstan_tape::{Batch, Fact, RunRecord, Store};

use super::super::tape::source::HomeTapes;
use super::super::{SERVE_COMMAND_EXAMPLE, print};
use crate::{CommandError, home};

/// Poll interval of the ledger.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Writes a cancel request to the ledger, which the process of the run polls, and waits until the run has ended.
pub(super) async fn cancel(
    home_tapes: &HomeTapes<'_>,
    store: &dyn Store,
    run: RunRecord,
    wait: Duration,
) -> Result<(), CommandError> {
    let id = &run.run_id;
    if !run.status.is_open() {
        return print(&format!("run {id} has already ended: {}", run.status));
    }
    let mut batch = Batch::new();
    batch.push(Fact::RequestCancel { run_id: id.clone() });
    store.commit(batch).await?;
    let owners = ProcessLiveness::open(home::process_locks_dir(&home_tapes.context.config.home));
    // An overflow means no deadline.
    let deadline = Instant::now().checked_add(wait);
    loop {
        // In this order: otherwise a process that ends its run and exits between the two would look dead.
        let is_owned = owners.is_run_owned(store, &run, Timestamp::now()).await?;
        let status = store.run(id).await?.map_or(run.status, |run| run.status);
        if !status.is_open() {
            return print(&format!("run {id} has ended: {status}"));
        }
        if !is_owned {
            let session = &run.session;
            print(&format!("run {id} is orphaned: its process is gone"))?;
            return print(&format!(
                "the next `{SERVE_COMMAND_EXAMPLE}`, or `capstan run` in session {session}, closes it"
            ));
        }
        if wait.is_zero() {
            return print(&format!("requested cancellation of run {id}"));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let message = format!("run {id} has not ended within {} s of the cancel request", wait.as_secs());
            return Err(CommandError::new(ErrorCode::RunStillRunning, message));
        }
        tokio::time::sleep(CANCEL_POLL_INTERVAL).await;
    }
}
