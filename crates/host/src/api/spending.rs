//! Models under the run's budget.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ModelCall, ModelEvent, ModelResults, ModelsApi, TokenCount, tool_bytes};
use capstan_protocol::{ApiError, ApiErrorCode, ModelId, ToolSpec, Usage};
use futures::StreamExt as _;

use crate::runs::budget::{Budget, Exhausted};

/// Models, as long as the run's budget lasts. A call that began is never cut short: the next one is refused.
pub(super) struct Spending<M> {
    pub(super) models: M,
    pub(super) budget: Arc<Budget>,
}

#[async_trait]
impl<M: ModelsApi> ModelsApi for Spending<M> {
    async fn stream(&self, call: ModelCall) -> Result<ModelResults, ApiError> {
        self.budget.begin_step().map_err(refused)?;
        if !self.budget.counts_tokens() {
            return self.models.stream(call).await;
        }
        let (bytes, tools) = (call.said_bytes(), Arc::clone(&call.tools));
        // A call that was refused used nothing.
        let results = self.models.stream(call).await?;
        let mut meter = Meter { budget: Arc::clone(&self.budget), bytes, tools, usage: None };
        Ok(results.inspect(move |event| meter.see(event)).boxed())
    }

    fn default_model(&self) -> ModelId {
        self.models.default_model()
    }
}

fn refused(exhausted: Exhausted) -> ApiError {
    ApiError::new(ApiErrorCode::RateLimited, exhausted.to_string()).caused_by(exhausted.code())
}

/// Counts what a call uses, and takes it from the budget when the call has ended, whichever way.
struct Meter {
    budget: Arc<Budget>,
    /// What was sent, and what came.
    bytes: u64,
    tools: Arc<[ToolSpec]>,
    /// What the provider said.
    usage: Option<u64>,
}

impl Meter {
    fn see(&mut self, event: &Result<ModelEvent, ApiError>) {
        match event {
            Ok(ModelEvent::Text(delta) | ModelEvent::Reasoning(delta)) => self.bytes += delta.len() as u64,
            Ok(ModelEvent::ToolCall(call)) => self.bytes += call.function.arguments.len() as u64,
            Ok(ModelEvent::Usage(usage)) => self.usage = tokens(usage).or(self.usage),
            _ => {}
        }
    }

    /// Where the provider does not say what was used.
    fn estimate(&self) -> u64 {
        TokenCount::of_bytes(self.bytes + tool_bytes(&self.tools)).tokens
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.budget.use_tokens(self.usage.unwrap_or_else(|| self.estimate()));
    }
}

/// The tokens of a call, if the provider said how many both ways.
fn tokens(usage: &Usage) -> Option<u64> {
    let both = usage.prompt_tokens.zip(usage.completion_tokens);
    usage.total_tokens.or(both.map(|(prompt, completion)| prompt.saturating_add(completion)))
}
