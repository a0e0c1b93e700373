//! Token meter: charges the tokens of a model call to the run's budget.

use std::sync::Arc;

use capstan_hooks::contracts::{ModelCall, ModelEvent, TokenCount};
use capstan_policy::{Budget, BudgetExhausted};
use capstan_protocol::run_api::tool_spec_bytes;
use capstan_protocol::{ApiError, ApiErrorCode, ToolSpec, Usage};

pub(super) fn budget_error(exhausted: BudgetExhausted) -> ApiError {
    ApiError::new(ApiErrorCode::RateLimited, exhausted.to_string()).with_cause(exhausted.code())
}

/// Counts the tokens of a call, and charges them to the budget when the call ends, whichever way. A call that has begun
/// is never cut short; the next one is refused.
pub(super) struct TokenMeter {
    budget: Arc<Budget>,
    text: SentText,
    /// Tokens that the provider reported.
    reported_tokens: Option<u64>,
}

/// Text of a call, for an estimate where the provider reports no tokens.
pub(super) struct SentText {
    bytes: u64,
    tools: Arc<[ToolSpec]>,
}

impl SentText {
    /// The text of a call, if the budget limits tokens.
    pub(super) fn of_metered_call(budget: &Budget, call: &ModelCall) -> Option<Self> {
        budget.has_token_limit().then(|| Self { bytes: call.message_bytes(), tools: Arc::clone(&call.tools) })
    }
}

impl TokenMeter {
    /// Starts the meter of a call that was sent. A call that was refused uses nothing.
    pub(super) fn start(budget: &Arc<Budget>, text: SentText) -> Self {
        Self { budget: Arc::clone(budget), text, reported_tokens: None }
    }

    /// Counts an event of the answer.
    pub(super) fn record_event(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::Text(delta) | ModelEvent::Reasoning(delta) => self.text.bytes += delta.len() as u64,
            ModelEvent::ToolCall(call) => self.text.bytes += call.function.arguments.len() as u64,
            ModelEvent::Usage(usage) => self.reported_tokens = total_tokens(usage).or(self.reported_tokens),
            ModelEvent::ProviderMeta(_) | ModelEvent::Truncated | ModelEvent::Stop => {}
        }
    }

    fn estimate_tokens(&self) -> u64 {
        TokenCount::from_text_bytes(self.text.bytes + tool_spec_bytes(&self.text.tools)).tokens
    }
}

impl Drop for TokenMeter {
    fn drop(&mut self) {
        self.budget.use_tokens(self.reported_tokens.unwrap_or_else(|| self.estimate_tokens()));
    }
}

/// Tokens of a call, if the provider reported both directions.
fn total_tokens(usage: &Usage) -> Option<u64> {
    let both_directions = usage.prompt_tokens.zip(usage.completion_tokens);
    usage.total_tokens.or(both_directions.map(|(prompt, completion)| prompt.saturating_add(completion)))
}
