//! `capstan runs cancel`.

use std::time::{Duration, Instant};

use capstan_host::ProcessLiveness;
use capstan_protocol::{ErrorCode, Timestamp};
use capstan_tape::{Batch, Fact, RunRecord, Store};

use super::super::tape::source::HomeTapes;
use super::super::{SERVE_COMMAND_EXAMPLE, print};
use crate::{CommandError, builder};

/// How often the ledger is looked at.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The request is written to the ledger, where the process that runs it looks.
pub(super) async fn cancel(
    scope: &HomeTapes<'_>,
    store: &dyn Store,
    run: RunRecord,
    wait: Duration,
) -> Result<(), CommandError> {
    let id = &run.run_id;
    if !run.status.is_open() {
        return print(&format!("run {id} has ended already: {}", run.status));
    }
    let mut batch = Batch::new();
    batch.push(Fact::RequestCancel { run_id: id.clone() });
    store.commit(batch).await?;
    let owners = ProcessLiveness::open(builder::process_locks_dir(&scope.context.config.home));
    // Further away than a clock can tell is never.
    let deadline = Instant::now().checked_add(wait);
    loop {
        // In this order: a process that ends its run and exits between the two is not taken for a dead one.
        let is_worked_on = owners.is_run_owned(store, &run, Timestamp::now()).await?;
        let status = store.run(id).await?.map_or(run.status, |run| run.status);
        if !status.is_open() {
            return print(&format!("run {id} has ended: {status}"));
        }
        if !is_worked_on {
            let session = &run.session;
            print(&format!("the process of run {id} is gone, and nobody works on it"))?;
            return print(&format!(
                "the next `{SERVE_COMMAND_EXAMPLE}`, or `capstan run` of session {session}, closes it"
            ));
        }
        if wait.is_zero() {
            return print(&format!("run {id} was asked to end"));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let message = format!("run {id} has not ended within {} s of being asked to", wait.as_secs());
            return Err(CommandError::new(ErrorCode::RunStillRunning, message));
        }
        tokio::time::sleep(CANCEL_POLL_INTERVAL).await;
    }
}
