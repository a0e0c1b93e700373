//! The run API: the only door a runner has. Every call is checked against the run's grant.

mod models;
mod prompt;
mod schedule;
mod steering;
mod step;
mod tape;
mod tools;

use std::sync::Arc;

use capstan_hooks::HookFailure;
use capstan_hooks::contracts::RunApi;
use capstan_protocol::{ApiError, ApiErrorCode};
use capstan_tape::StoreError;

use crate::run::Run;

/// The API of one run.
pub(crate) fn run_api(run: &Arc<Run>) -> RunApi {
    RunApi {
        run_id: run.id().clone(),
        models: Arc::new(models::Models(Arc::clone(run))),
        tools: Arc::new(tools::Tools(Arc::clone(run))),
        tape: Arc::new(tape::SessionTape(Arc::clone(run))),
        prompt: Arc::new(prompt::Prompts(Arc::clone(run))),
        steering: Arc::new(steering::Steered(Arc::clone(run))),
        cancelled: run.cancelled.clone(),
    }
}

fn unauthorized(what: &str) -> ApiError {
    ApiError::new(ApiErrorCode::Unauthorized, format!("the grant of this run does not cover {what}"))
}

/// A store's own words may name paths; a runner needs to know only that it failed.
fn store_failed(error: &StoreError) -> ApiError {
    tracing::error!(%error, "the store failed during a run");
    ApiError::new(ApiErrorCode::RuntimeError, "the store failed").caused_by("store-failed")
}

fn hook_failed(failure: &HookFailure) -> ApiError {
    tracing::error!(%failure, "a hook failed during a run");
    let message = format!("{} of plugin {} failed", failure.hook, failure.plugin);
    ApiError::new(ApiErrorCode::RuntimeError, message).caused_by("hook-failed")
}
