//! The host's prompts, as a run may ask for them.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::args::{ContinuePromptArgs, StepNumber, SystemPromptArgs};
use capstan_hooks::contracts::PromptApi;
use capstan_hooks::points::{ContinuePrompt, SystemPrompt};
use capstan_protocol::{ApiError, ApiErrorCode, Content, ErrorCode};

use super::{hook_api_error, unauthorized_error};
use crate::runs::run::Run;

pub(super) struct PromptHandler(pub(super) Arc<Run>);

impl PromptHandler {
    fn check_granted(&self) -> Result<(), ApiError> {
        if self.0.grant().may.prompt { Ok(()) } else { Err(unauthorized_error("the host's prompts")) }
    }
}

#[async_trait]
impl PromptApi for PromptHandler {
    /// Every plugin's part, the lowest priority first, with a blank line between; empty ones are left out.
    async fn system(&self) -> Result<String, ApiError> {
        self.check_granted()?;
        let args = SystemPromptArgs { prompt: self.0.prompt.clone(), state: self.0.state.clone() };
        // The hook is synchronous and reads files: other sessions must not wait for a disk.
        let run = Arc::clone(&self.0);
        let asked = tokio::task::spawn_blocking(move || run.services.hooks.call_all_sync::<SystemPrompt>(&args)).await;
        let answers = asked.map_err(|error| {
            tracing::error!(%error, "the system prompt was not made");
            ApiError::new(ApiErrorCode::RuntimeError, "the system prompt could not be made")
                .with_cause(ErrorCode::HookFailed)
        })?;
        let answers = answers.map_err(|failure| hook_api_error(&failure))?;
        let parts = answers.into_iter().rev().filter_map(|answer| answer.value).filter(|part| !part.is_empty());
        Ok(parts.collect::<Vec<_>>().join("\n\n"))
    }

    async fn continuation(&self, step: u32) -> Result<Option<Content>, ApiError> {
        self.check_granted()?;
        let args = ContinuePromptArgs {
            step: StepNumber(step),
            session_id: self.0.context.conversation.session_id.clone(),
            state: self.0.state.clone(),
        };
        let decided = self.0.services.hooks.call_first::<ContinuePrompt>(&args).await;
        let content = decided.map_err(|failure| hook_api_error(&failure))?.map(|decided| decided.value);
        Ok(content.filter(|content| !content.is_empty()))
    }
}
