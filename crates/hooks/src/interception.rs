//! The interception hooks: what may change or stop a call, and what sees how it ended.

use std::sync::Arc;

use capstan_protocol::{JsonObject, ModelOutput, ModelRequest, ToolOutput};

use crate::args::{
    AfterLlmCallArgs, AfterToolCallArgs, BeforeLlmCallArgs, BeforeToolCallArgs, LlmRequest, PendingToolCall,
    ToolOutcome,
};
use crate::points::{AfterLlmCall, AfterToolCall, BeforeLlmCall, BeforeToolCall, LlmCallVerdict, ToolCallVerdict};
use crate::registry::HookImplementation;
use crate::{AsyncMode, HookError, HookPoint, HookRuntime};

/// What the chain made of a request to a model.
#[derive(Debug, Clone, PartialEq)]
pub enum LlmDecision {
    /// Send it.
    Send(Arc<ModelRequest>),
    /// Do not: this is the answer.
    Finish(Box<ModelOutput>),
}

/// What the chain made of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolDecision {
    /// Make it, with these arguments.
    Call(Arc<JsonObject>),
    /// Do not: this is its output.
    Return(ToolOutput),
}

impl HookRuntime {
    /// Takes a request through `before_llm_call`: each plugin sees what the ones before it made of it.
    pub async fn before_llm_call(&self, mut args: BeforeLlmCallArgs) -> Result<LlmDecision, HookError> {
        for implementation in self.registry().implementations::<BeforeLlmCall>() {
            match self.intercept(implementation, &args).await? {
                None => {}
                Some(LlmCallVerdict::Change(request)) => args.request = LlmRequest(Arc::new(request)),
                Some(LlmCallVerdict::Finish(output)) => return Ok(LlmDecision::Finish(Box::new(output))),
            }
        }
        Ok(LlmDecision::Send(args.request.0))
    }

    /// Takes a tool call through `before_tool_call`.
    pub async fn before_tool_call(&self, mut args: BeforeToolCallArgs) -> Result<ToolDecision, HookError> {
        for implementation in self.registry().implementations::<BeforeToolCall>() {
            match self.intercept(implementation, &args).await? {
                None => {}
                Some(ToolCallVerdict::Proceed(arguments)) => {
                    args.call = PendingToolCall { arguments: Arc::new(arguments), ..args.call };
                }
                Some(ToolCallVerdict::Replace(output)) => return Ok(ToolDecision::Return(output)),
                Some(ToolCallVerdict::Deny(message)) => return Ok(ToolDecision::Return(ToolOutput::error(message))),
            }
        }
        Ok(ToolDecision::Call(args.call.arguments))
    }

    /// Shows `after_llm_call` how a call ended.
    pub async fn after_llm_call(&self, args: &AfterLlmCallArgs) -> Result<(), HookError> {
        for implementation in self.registry().implementations::<AfterLlmCall>() {
            self.intercept(implementation, args).await?;
        }
        Ok(())
    }

    /// Shows `after_tool_call` how a call ended, and gives what it answered in the end: each plugin sees what the ones
    /// before it made of it.
    pub async fn after_tool_call(&self, mut args: AfterToolCallArgs) -> Result<Arc<ToolOutput>, HookError> {
        for implementation in self.registry().implementations::<AfterToolCall>() {
            if let Some(output) = self.intercept(implementation, &args).await? {
                args.outcome = ToolOutcome(Arc::new(output));
            }
        }
        Ok(args.outcome.0)
    }

    /// Asks one plugin. Its failure is logged and skipped, unless it declared itself fail-closed.
    async fn intercept<P: HookPoint<Mode = AsyncMode>>(
        &self,
        implementation: &HookImplementation<P>,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookError> {
        match self.call_implementation(implementation, args).await {
            Err(failure) if !implementation.fail_closed => {
                tracing::warn!(hook = failure.hook, plugin = %failure.plugin, reason = %failure.reason, "interception skipped");
                Ok(None)
            }
            answer => answer,
        }
    }
}
