//! The run API: the only door a runner has. Every call is checked against the run's grant.

mod artifacts;
mod cursor;
pub(crate) mod door;
mod events;
mod gates;
mod gates_kept;
mod guarded;
mod history;
mod images;
mod knowledge;
mod limits;
pub(crate) mod models;
mod needs;
pub(crate) mod open_calls;
mod outside;
mod parts;
mod prompt;
mod reserved;
mod runs;
mod schedule;
mod session;
pub(crate) mod size;
mod spending;
mod spill;
mod state;
mod steering;
mod step;
mod storage;
mod tape;
mod tools;
mod watched;

use std::sync::Arc;

use capstan_hooks::HookFailure;
use capstan_hooks::contracts::{ResultStream, RunApi};
use capstan_protocol::{ApiError, ApiErrorCode, ModelUse};
use capstan_tape::StoreError;
use capstan_turn::TurnError;
use futures::{StreamExt as _, stream};

use self::guarded::Holder;
pub use self::limits::ApiLimits;
use crate::runs::run::Run;

/// Asks a run's runner, with a handle to the host. Whoever calls while it works is known to be that run.
pub(crate) fn ask_runner(run: &Arc<Run>) -> ResultStream {
    let run = Arc::clone(run);
    let mut results = door::calling(&run, || run.runner.run(run.context.clone(), run_api(&run, Holder::Runner)));
    stream::poll_fn(move |context| door::calling(&run, || results.poll_next_unpin(context))).boxed()
}

/// The API of one run.
fn run_api(run: &Arc<Run>, holder: Holder) -> RunApi {
    let models = |asked| spending::Spending {
        models: watched::Watched { models: models::Models(Arc::clone(run), asked), run: Arc::clone(run) },
        budget: Arc::clone(&run.budget),
    };
    let two_ways = gates::TwoWays { streaming: models(ModelUse::Stream), invoking: models(ModelUse::Invoke) };
    RunApi {
        run_id: run.id().clone(),
        session_id: run.context.conversation.session_id.clone(),
        models: guarded(run, holder, two_ways),
        tools: guarded(run, holder, tools::Tools(Arc::clone(run))),
        tape: guarded(run, holder, tape::SessionTape(Arc::clone(run))),
        prompt: guarded(run, holder, prompt::Prompts(Arc::clone(run))),
        steering: guarded(run, holder, steering::Steered(Arc::clone(run))),
        session: guarded(run, holder, session::Kept(Arc::clone(run))),
        artifacts: guarded(run, holder, artifacts::Artifacts(Arc::clone(run))),
        runs: guarded(run, holder, runs::Runs(Arc::clone(run))),
        state: guarded(run, holder, state::States(Arc::clone(run))),
        storage: guarded(run, holder, storage::Storage(Arc::clone(run))),
        history: guarded(run, holder, history::History(Arc::clone(run))),
        events: guarded(run, holder, events::Events(Arc::clone(run))),
        knowledge: guarded(run, holder, knowledge::Knowledge(Arc::clone(run))),
        platform: guarded(run, holder, outside::Platform(Arc::clone(run))),
        cancelled: run.cancelled.clone(),
    }
}

fn guarded<G>(run: &Arc<Run>, holder: Holder, group: G) -> Arc<guarded::Guarded<G>> {
    Arc::new(guarded::Guarded { run: Arc::clone(run), group, holder })
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
