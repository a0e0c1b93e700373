//! The host's prompts, as a run may ask for them.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::args::{ContinuePromptArgs, StepNumber, SystemPromptArgs};
use capstan_hooks::contracts::PromptApi;
use capstan_hooks::points::{ContinuePrompt, SystemPrompt};
use capstan_protocol::{ApiError, ApiErrorCode, Content};

use super::{hook_failed, unauthorized};
use crate::runs::run::Run;

pub(super) struct Prompts(pub(super) Arc<Run>);

impl Prompts {
    fn may(&self) -> Result<(), ApiError> {
        if self.0.grant().may.prompt { Ok(()) } else { Err(unauthorized("the host's prompts")) }
    }
}

#[async_trait]
impl PromptApi for Prompts {
    /// Every plugin's part, the lowest priority first, with a blank line between; empty ones are left out.
    async fn system(&self) -> Result<String, ApiError> {
        self.may()?;
        let args = SystemPromptArgs { prompt: self.0.prompt.clone(), state: self.0.state.clone() };
        // The hook is synchronous and reads files: other sessions must not wait for a disk.
        let run = Arc::clone(&self.0);
        let asked = tokio::task::spawn_blocking(move || run.services.hooks.all_sync::<SystemPrompt>(&args)).await;
        let answers = asked.map_err(|error| {
            tracing::error!(%error, "the system prompt was not made");
            ApiError::new(ApiErrorCode::RuntimeError, "the system prompt could not be made").caused_by("hook-failed")
        })?;
        let answers = answers.map_err(|failure| hook_failed(&failure))?;
        let parts = answers.into_iter().rev().filter_map(|answer| answer.value).filter(|part| !part.is_empty());
        Ok(parts.collect::<Vec<_>>().join("\n\n"))
    }

    async fn continuation(&self, step: u32) -> Result<Option<Content>, ApiError> {
        self.may()?;
        let args = ContinuePromptArgs {
            step: StepNumber(step),
            session_id: self.0.context.conversation.session_id.clone(),
            state: self.0.state.clone(),
        };
        let decided = self.0.services.hooks.first::<ContinuePrompt>(&args).await;
        let content = decided.map_err(|failure| hook_failed(&failure))?.map(|decided| decided.value);
        Ok(content.filter(|content| !content.is_empty()))
    }
}
