//! The run API: the only door a runner has. Every call is checked against the run's grant.

mod artifacts;
mod images;
mod models;
pub(crate) mod open_calls;
mod prompt;
mod runs;
mod schedule;
mod session;
mod spending;
mod steering;
mod step;
mod tape;
mod tools;
mod watched;

use std::sync::Arc;

use capstan_hooks::HookFailure;
use capstan_hooks::contracts::RunApi;
use capstan_protocol::{ApiError, ApiErrorCode};
use capstan_tape::StoreError;
use capstan_turn::TurnError;

use crate::run::Run;

/// The API of one run.
pub(crate) fn run_api(run: &Arc<Run>) -> RunApi {
    RunApi {
        run_id: run.id().clone(),
        session_id: run.context.conversation.session_id.clone(),
        models: Arc::new(spending::Spending {
            models: watched::Watched { models: models::Models(Arc::clone(run)), run: Arc::clone(run) },
            budget: Arc::clone(&run.budget),
        }),
        tools: Arc::new(tools::Tools(Arc::clone(run))),
        tape: Arc::new(tape::SessionTape(Arc::clone(run))),
        prompt: Arc::new(prompt::Prompts(Arc::clone(run))),
        steering: Arc::new(steering::Steered(Arc::clone(run))),
        session: Arc::new(session::Kept(Arc::clone(run))),
        artifacts: Arc::new(artifacts::Artifacts(Arc::clone(run))),
        runs: Arc::new(runs::Runs(Arc::clone(run))),
        cancelled: run.cancelled.clone(),
    }
}

fn unauthorized(what: &str) -> ApiError {
    ApiError::new(ApiErrorCode::Unauthorized, format!("the grant of this run does not cover {what}"))
}

/// A store's own words may name paths; a runner needs to know only that it failed.
pub(crate) fn store_failed(error: &StoreError) -> ApiError {
    tracing::error!(%error, "the store failed during a run");
    let (message, cause) = match error {
        StoreError::Full { .. } => ("the disk is full", error.code()),
        StoreError::ReadOnly { .. } | StoreError::Busy { .. } => ("the store cannot be written", error.code()),
        _ => ("the store failed", "store-failed"),
    };
    ApiError::new(ApiErrorCode::RuntimeError, message).caused_by(cause)
}

/// The store failed when what tools did was to be written: whoever asked has to look at what they did.
fn done_unrecorded(error: &StoreError, tools: &[String]) -> ApiError {
    let failed = store_failed(error);
    if tools.is_empty() {
        return failed;
    }
    let message = format!(
        "{} after {} had run. Please check what was done before you ask again.",
        TurnError::Store(error.clone()).public(),
        tools.join(", ")
    );
    ApiError { message, ..failed }
}

fn hook_failed(failure: &HookFailure) -> ApiError {
    tracing::error!(%failure, "a hook failed during a run");
    let message = format!("{} of plugin {} failed", failure.hook, failure.plugin);
    ApiError::new(ApiErrorCode::RuntimeError, message).caused_by("hook-failed")
}

#[cfg(test)]
mod tests {
    use capstan_tape::StoreError;

    use super::store_failed;

    #[test]
    fn x01_a_runner_is_told_that_the_disk_is_full_and_no_path() {
        let full = StoreError::Full { what: "/home/ada/.capstan/capstan.db".to_owned() };
        let failed = store_failed(&full);
        assert_eq!((failed.cause.as_deref(), failed.message.as_str()), (Some("disk-full"), "the disk is full"));
        let locked = store_failed(&StoreError::Busy { what: "/home/ada/.capstan/capstan.db".to_owned() });
        assert_eq!(locked.cause.as_deref(), Some("store-busy"));
        assert_eq!(store_failed(&StoreError::io("/x", "gone")).cause.as_deref(), Some("store-failed"));
    }
}
