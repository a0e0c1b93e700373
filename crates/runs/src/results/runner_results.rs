//! Results of a runner that is being polled.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use capstan_hooks::contracts::{ResultStream, RunApi};
use capstan_protocol::RunResult;
use futures::StreamExt as _;

use crate::run::Run;
use crate::run::call_limiter::with_caller;

/// The result stream of a runner. While it is polled, its run is known as the caller of the run API.
///
/// It is dropped at the end of its run, at the deadline and on cancellation; a panic while it is dropped is caught.
pub(super) struct RunnerResults {
    run: Arc<Run>,
    results: Option<ResultStream>,
}

impl RunnerResults {
    /// Starts the runner of a run.
    pub(super) fn start(run: &Arc<Run>, api: RunApi) -> Self {
        let results = with_caller(run, || run.runner.runner.run(run.context.clone(), api));
        Self { run: Arc::clone(run), results: Some(results) }
    }

    /// The next result.
    pub(super) async fn next(&mut self) -> Option<RunResult> {
        let Self { run, results: Some(results) } = self else { return None };
        poll_fn(|context| with_caller(run, || results.poll_next_unpin(context))).await
    }
}

impl Drop for RunnerResults {
    fn drop(&mut self) {
        let results = self.results.take();
        if catch_unwind(AssertUnwindSafe(|| drop(results))).is_err() {
            tracing::warn!("a runner panicked while its stream was dropped");
        }
    }
}
