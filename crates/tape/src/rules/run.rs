//! Status transitions of a run: created, running, ended.

use capstan_protocol::{Timestamp, Usage};

use crate::{RunRecord, RunStatus};

/// Starts a run. `None` if it is already running or has ended.
pub(super) fn start_run(run: RunRecord) -> Option<RunRecord> {
    (run.status == RunStatus::Created).then_some(RunRecord { status: RunStatus::Running, ..run })
}

/// Requests cancellation of a run. `None` if it has ended.
pub(super) fn request_cancel(run: RunRecord) -> Option<RunRecord> {
    run.status.is_open().then_some(RunRecord { cancel_requested: true, ..run })
}

/// Ends a run. `None` if it has ended: the first status is the best informed one.
pub(super) fn end_run(run: RunRecord, status: RunStatus, usage: Option<Usage>, at: Timestamp) -> Option<RunRecord> {
    if run.status.is_open() {
        return Some(RunRecord { status, usage, ended_at: Some(at), ..run });
    }
    tracing::warn!(run_id = %run.run_id, was = %run.status, %status, "ignored the second end of a run");
    None
}
