//! Models under the run's budget.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ModelCall, ModelEvent, ModelResultStream, ModelsApi, TokenCount, tool_spec_bytes};
use capstan_policy::{Budget, BudgetExhausted};
use capstan_protocol::{ApiError, ApiErrorCode, ModelId, ToolSpec, Usage};
use futures::StreamExt as _;

/// Models, as long as the run's budget lasts. A call that began is never cut short: the next one is refused.
pub(super) struct MeteredModels<M> {
    pub(super) models: M,
    pub(super) budget: Arc<Budget>,
}

#[async_trait]
impl<M: ModelsApi> ModelsApi for MeteredModels<M> {
    async fn stream(&self, call: ModelCall) -> Result<ModelResultStream, ApiError> {
        self.budget.begin_step().map_err(budget_error)?;
        if !self.budget.has_token_limit() {
            return self.models.stream(call).await;
        }
        let (bytes, tools) = (call.message_bytes(), Arc::clone(&call.tools));
        // A call that was refused used nothing.
        let results = self.models.stream(call).await?;
        let mut meter = TokenMeter { budget: Arc::clone(&self.budget), bytes, tools, reported_tokens: None };
        Ok(results.inspect(move |event| meter.record_event(event)).boxed())
    }

    fn default_model(&self) -> ModelId {
        self.models.default_model()
    }
}

fn budget_error(exhausted: BudgetExhausted) -> ApiError {
    ApiError::new(ApiErrorCode::RateLimited, exhausted.to_string()).with_cause(exhausted.code())
}

/// Counts what a call uses, and takes it from the budget when the call has ended, whichever way.
struct TokenMeter {
    budget: Arc<Budget>,
    /// What was sent, and what came.
    bytes: u64,
    tools: Arc<[ToolSpec]>,
    /// What the provider said.
    reported_tokens: Option<u64>,
}

impl TokenMeter {
    fn record_event(&mut self, event: &Result<ModelEvent, ApiError>) {
        match event {
            Ok(ModelEvent::Text(delta) | ModelEvent::Reasoning(delta)) => self.bytes += delta.len() as u64,
            Ok(ModelEvent::ToolCall(call)) => self.bytes += call.function.arguments.len() as u64,
            Ok(ModelEvent::Usage(usage)) => self.reported_tokens = total_tokens(usage).or(self.reported_tokens),
            _ => {}
        }
    }

    /// Where the provider does not say what was used.
    fn estimate_tokens(&self) -> u64 {
        TokenCount::from_text_bytes(self.bytes + tool_spec_bytes(&self.tools)).tokens
    }
}

impl Drop for TokenMeter {
    fn drop(&mut self) {
        self.budget.use_tokens(self.reported_tokens.unwrap_or_else(|| self.estimate_tokens()));
    }
}

/// The tokens of a call, if the provider said how many both ways.
fn total_tokens(usage: &Usage) -> Option<u64> {
    let both = usage.prompt_tokens.zip(usage.completion_tokens);
    usage.total_tokens.or(both.map(|(prompt, completion)| prompt.saturating_add(completion)))
}
