//! Methods of `prompt.*`: the host's prompts.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::args::{ContinuePromptArgs, StepNumber, SystemPromptArgs};
use capstan_hooks::contracts::methods::{PromptContinuation, PromptSystem};
use capstan_hooks::points::{ContinuePrompt, SystemPrompt};
use capstan_protocol::run_api::{ContinuationCall, EmptyCall};
use capstan_protocol::{ApiError, ApiErrorCode, Content, ErrorCode};
use tokio::time::timeout;

use super::hook_api_error;
use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use crate::run::Run;
use crate::run::call_limiter::CallPermit;

/// Maximum time to wait for a slot.
const MAX_SLOT_WAIT: Duration = Duration::from_secs(1);

impl MethodHandler for PromptSystem {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        RequiredPermission::Prompt
    }

    /// Returns the system prompt of the run, which its first call builds.
    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<String, ApiError> {
        run.system_prompt.get_or_try_init(|| build_system_prompt(run)).await.cloned()
    }
}

/// Joins the parts of all plugins, the lowest priority first, separated by a blank line; empty ones are skipped.
async fn build_system_prompt(run: &Arc<Run>) -> Result<String, ApiError> {
    let args = SystemPromptArgs {
        prompt: run.prompt.clone(),
        session_id: run.context.conversation.session_id.clone(),
        state: run.state.clone(),
    };
    let build_failed = |error: &dyn Error| {
        tracing::error!(%error, "cannot build the system prompt");
        ApiError::new(ApiErrorCode::RuntimeError, "the system prompt could not be built")
            .with_cause(ErrorCode::HookFailed)
    };
    // Slots save memory. Hooks that hang must not delay other sessions, which go on without a slot.
    let slot = timeout(MAX_SLOT_WAIT, Arc::clone(&run.environment.prompt_slots).acquire_owned()).await.ok();
    // The hook is synchronous and reads files: other sessions must not wait for the disk.
    let run = Arc::clone(run);
    // The slot returns with the answers, so that the thread is about to be idle when the slot is free.
    let answers =
        tokio::task::spawn_blocking(move || (run.environment.hooks.call_all_sync::<SystemPrompt>(&args), slot));
    let (answers, _slot) = answers.await.map_err(|error| build_failed(&error))?;
    let answers = answers.map_err(|failure| hook_api_error(&failure))?;
    let parts = answers.into_iter().rev().filter_map(|answer| answer.value).filter(|part| !part.is_empty());
    Ok(parts.collect::<Vec<_>>().join("\n\n"))
}

impl MethodHandler for PromptContinuation {
    fn permission(_: &Run, _: &ContinuationCall) -> RequiredPermission {
        RequiredPermission::Prompt
    }

    async fn handle(run: &Arc<Run>, call: ContinuationCall, _: CallPermit) -> Result<Option<Content>, ApiError> {
        let args = ContinuePromptArgs {
            step: StepNumber(call.step),
            session_id: run.context.conversation.session_id.clone(),
            state: run.state.clone(),
        };
        let decided = run.environment.hooks.call_first::<ContinuePrompt>(&args).await;
        let content = decided.map_err(|failure| hook_api_error(&failure))?.map(|decided| decided.value);
        Ok(content.filter(|content| !content.is_empty()))
    }
}
