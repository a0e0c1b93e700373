//! The run API: the only way from a runner to the host.
//!
//! [`guard`] admits every call and dispatches it to the [`method_handler::MethodHandler`] of its method. The handlers
//! are in the files of their groups, each with the permission it needs and the size of its request beside it.

mod artifacts;
mod call_schedule;
mod child_runs;
mod command_access;
mod cursor;
mod events;
mod guard;
mod history;
mod image_limit;
mod knowledge;
mod method_handler;
mod model_call_deadline;
mod model_list;
mod model_reply;
mod models;
mod paging;
mod platform;
mod prompt;
mod required_permission;
mod session;
mod state;
mod steering;
mod storage;
mod tape;
mod token_meter;
mod tool_authority;
mod tool_step;
mod tools;

pub(crate) use self::artifacts::resolve_artifact_parts;

use std::sync::Arc;

use capstan_hooks::contracts::RunApi;

use self::guard::{CallerKind, GuardedApi};
use crate::api_error::{hook_api_error, store_api_error, unauthorized_error, unrecorded_effects_error};
use crate::run::Run;

/// Builds the API of the runner of a run.
pub(crate) fn runner_api(run: &Arc<Run>) -> RunApi {
    build_run_api(run, CallerKind::Runner)
}

/// Builds the API of one run.
fn build_run_api(run: &Arc<Run>, caller: CallerKind) -> RunApi {
    let session_id = run.context.conversation.session_id.clone();
    let backend = Arc::new(GuardedApi { run: Arc::clone(run), caller });
    RunApi::new(run.id().clone(), session_id, run.cancel_token.clone(), backend)
}
