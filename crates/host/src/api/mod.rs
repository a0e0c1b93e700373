//! The run API: the only way from a runner to the host.
//!
//! [`guard`] admits every call and dispatches it to the [`method_handler::MethodHandler`] of its method. The handlers are
//! in the files of their groups, each with the permission it needs and the size of its request beside it.

mod api_limits;
mod artifacts;
pub(crate) mod call_limiter;
mod call_schedule;
mod child_runs;
mod cursor;
mod events;
mod guard;
mod history;
mod image_limit;
mod knowledge;
mod method_handler;
mod model_reply;
mod models;
pub(crate) mod open_calls;
mod paging;
pub(crate) mod payload_size;
mod platform;
mod prompt;
mod required_permission;
mod session;
mod spill;
mod state;
mod steering;
mod storage;
mod tape;
mod token_meter;
mod tool_step;
mod tools;

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use capstan_hooks::HookError;
use capstan_hooks::contracts::{ResultStream, RunApi};
use capstan_protocol::{ApiError, ApiErrorCode, ErrorCode, RunResult};
use capstan_tape::StoreError;
use capstan_turn::TurnError;
use futures::{StreamExt as _, stream};

pub use self::api_limits::ApiLimits;
use self::guard::{CallerKind, GuardedApi};
use crate::runs::run::Run;

/// Starts a run's runner, with a handle to the host. While it is polled, the run is known to be the caller. Its results
/// carry the id of the run.
pub(crate) fn call_runner(run: &Arc<Run>) -> ResultStream {
    let run = Arc::clone(run);
    let mut results = call_limiter::with_caller(&run, || {
        run.runner.run(run.context.clone(), build_run_api(&run, CallerKind::Runner))
    });
    let next_result = move |context: &mut Context<'_>| {
        let result = ready!(call_limiter::with_caller(&run, || results.poll_next_unpin(context)));
        Poll::Ready(result.map(|result| RunResult { run_id: Some(run.id().clone()), ..result }))
    };
    stream::poll_fn(next_result).boxed()
}

/// The API of one run.
fn build_run_api(run: &Arc<Run>, caller: CallerKind) -> RunApi {
    let session_id = run.context.conversation.session_id.clone();
    let backend = Arc::new(GuardedApi { run: Arc::clone(run), caller });
    RunApi::new(run.id().clone(), session_id, run.cancelled.clone(), backend)
}

fn unauthorized_error(what: &str) -> ApiError {
    ApiError::new(ApiErrorCode::Unauthorized, format!("the grant of this run does not cover {what}"))
}

/// Failure of the store, without its own words, which may name paths.
pub(crate) fn store_api_error(error: &StoreError) -> ApiError {
    tracing::error!(%error, "the store failed during a run");
    let (message, cause) = match error {
        StoreError::DiskFull { .. } => ("the disk is full", error.code()),
        StoreError::ReadOnly { .. } | StoreError::Busy { .. } => ("the store cannot be written", error.code()),
        _ => ("the store failed", ErrorCode::StoreFailed),
    };
    ApiError::new(ApiErrorCode::RuntimeError, message).with_cause(cause)
}

/// Failure of the store to record tool calls that have run: the user has to check what they did.
fn unrecorded_effects_error(error: &StoreError, tools: &[String]) -> ApiError {
    let failed = store_api_error(error);
    if tools.is_empty() {
        return failed;
    }
    let message = format!(
        "{} after {} had run. Please check what was done before you ask again.",
        TurnError::Store(error.clone()).public_message(),
        tools.join(", ")
    );
    ApiError { message, ..failed }
}

fn hook_api_error(failure: &HookError) -> ApiError {
    tracing::error!(%failure, "a hook failed during a run");
    let message = format!("{} of plugin {} failed", failure.hook, failure.plugin);
    ApiError::new(ApiErrorCode::RuntimeError, message).with_cause(ErrorCode::HookFailed)
}

#[cfg(test)]
mod tests {
    use capstan_protocol::ErrorCode;
    use capstan_tape::StoreError;

    use super::store_api_error;

    #[test]
    fn x01_a_runner_is_told_that_the_disk_is_full_and_no_path() {
        let full = StoreError::DiskFull { what: "/home/ada/.capstan/capstan.db".to_owned() };
        let failed = store_api_error(&full);
        assert_eq!((failed.cause, failed.message.as_str()), (Some(ErrorCode::DiskFull.into()), "the disk is full"));
        let locked = store_api_error(&StoreError::Busy { what: "/home/ada/.capstan/capstan.db".to_owned() });
        assert_eq!(locked.cause, Some(ErrorCode::StoreBusy.into()));
        assert_eq!(store_api_error(&StoreError::io("/x", "gone")).cause, Some(ErrorCode::StoreFailed.into()));
    }
}
