//! The life of a run: created, running, ended once.

use capstan_protocol::{Timestamp, Usage};

use crate::{RunRecord, RunStatus};

/// A run whose runner starts. One that runs, or has ended, stays as it is.
pub(super) fn start_run(run: RunRecord) -> Option<RunRecord> {
    (run.status == RunStatus::Created).then_some(RunRecord { status: RunStatus::Running, ..run })
}

/// A run that somebody wants to end. One that has ended stays as it is.
pub(super) fn request_cancel(run: RunRecord) -> Option<RunRecord> {
    run.status.is_open().then_some(RunRecord { cancel_requested: true, ..run })
}

/// A run that ends. One that has ended stays as it ended: whoever comes second knows less about it.
pub(super) fn end_run(run: RunRecord, status: RunStatus, usage: Option<Usage>, at: Timestamp) -> Option<RunRecord> {
    if run.status.is_open() {
        return Some(RunRecord { status, usage, ended_at: Some(at), ..run });
    }
    tracing::warn!(run_id = %run.run_id, was = %run.status, %status, "a run that has ended was to end again");
    None
}
