//! The run API: the only door a runner has. Every call is checked against the run's grant.

mod api_limits;
mod artifacts;
pub(crate) mod call_limiter;
mod call_schedule;
mod child_runs;
mod cursor;
mod events;
mod guard;
mod guarded_data_methods;
mod guarded_run_methods;
mod history;
mod image_limit;
mod knowledge;
mod metered_models;
pub(crate) mod models;
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
mod tool_step;
mod tools;
mod tracked_models;

use std::sync::Arc;

use capstan_hooks::HookError;
use capstan_hooks::contracts::{ResultStream, RunApi};
use capstan_protocol::{ApiError, ApiErrorCode, ErrorCode, ModelOperation};
use capstan_tape::StoreError;
use capstan_turn::TurnError;
use futures::{StreamExt as _, stream};

pub use self::api_limits::ApiLimits;
use self::guard::CallerKind;
use crate::runs::run::Run;

/// Asks a run's runner, with a handle to the host. Whoever calls while it works is known to be that run.
pub(crate) fn call_runner(run: &Arc<Run>) -> ResultStream {
    let run = Arc::clone(run);
    let mut results = call_limiter::with_caller(&run, || {
        run.runner.run(run.context.clone(), build_run_api(&run, CallerKind::Runner))
    });
    stream::poll_fn(move |context| call_limiter::with_caller(&run, || results.poll_next_unpin(context))).boxed()
}

/// The API of one run.
fn build_run_api(run: &Arc<Run>, holder: CallerKind) -> RunApi {
    let models = |asked| metered_models::MeteredModels {
        models: tracked_models::TrackedModels {
            models: models::ModelsHandler(Arc::clone(run), asked),
            run: Arc::clone(run),
        },
        budget: Arc::clone(&run.budget),
    };
    let two_ways = guarded_run_methods::GuardedModels {
        streaming: models(ModelOperation::Stream),
        invoking: models(ModelOperation::Invoke),
    };
    RunApi {
        run_id: run.id().clone(),
        session_id: run.context.conversation.session_id.clone(),
        models: guarded(run, holder, two_ways),
        tools: guarded(run, holder, tools::ToolsHandler(Arc::clone(run))),
        tape: guarded(run, holder, tape::TapeHandler(Arc::clone(run))),
        prompt: guarded(run, holder, prompt::PromptHandler(Arc::clone(run))),
        steering: guarded(run, holder, steering::SteeringHandler(Arc::clone(run))),
        session: guarded(run, holder, session::SessionHandler(Arc::clone(run))),
        artifacts: guarded(run, holder, artifacts::ArtifactsHandler(Arc::clone(run))),
        runs: guarded(run, holder, child_runs::ChildRunsHandler(Arc::clone(run))),
        state: guarded(run, holder, state::StateHandler(Arc::clone(run))),
        storage: guarded(run, holder, storage::StorageHandler(Arc::clone(run))),
        history: guarded(run, holder, history::HistoryHandler(Arc::clone(run))),
        events: guarded(run, holder, events::EventsHandler(Arc::clone(run))),
        knowledge: guarded(run, holder, knowledge::KnowledgeHandler(Arc::clone(run))),
        platform: guarded(run, holder, platform::PlatformHandler(Arc::clone(run))),
        cancel_token: run.cancelled.clone(),
    }
}

fn guarded<G>(run: &Arc<Run>, holder: CallerKind, group: G) -> Arc<guard::GuardedApi<G>> {
    Arc::new(guard::GuardedApi { run: Arc::clone(run), inner: group, caller: holder })
}

fn unauthorized_error(what: &str) -> ApiError {
    ApiError::new(ApiErrorCode::Unauthorized, format!("the grant of this run does not cover {what}"))
}

/// A store's own words may name paths; a runner needs to know only that it failed.
pub(crate) fn store_api_error(error: &StoreError) -> ApiError {
    tracing::error!(%error, "the store failed during a run");
    let (message, cause) = match error {
        StoreError::DiskFull { .. } => ("the disk is full", error.code()),
        StoreError::ReadOnly { .. } | StoreError::Busy { .. } => ("the store cannot be written", error.code()),
        _ => ("the store failed", ErrorCode::StoreFailed),
    };
    ApiError::new(ApiErrorCode::RuntimeError, message).with_cause(cause)
}

/// The store failed when what tools did was to be written: whoever asked has to look at what they did.
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
