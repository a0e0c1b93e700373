//! Interception hooks: the ones that may change or stop a model or tool call, and the ones that see its result.

use std::sync::Arc;

use capstan_protocol::{JsonObject, ModelOutput, ModelRequest, ToolOutput};

use crate::args::{
    AfterLlmCallArgs, AfterToolCallArgs, BeforeLlmCallArgs, BeforeToolCallArgs, LlmRequest, PendingToolCall,
    ToolOutcome,
};
use crate::caller::HookCaller;
use crate::points::{AfterLlmCall, AfterToolCall, BeforeLlmCall, BeforeToolCall, LlmCallVerdict, ToolCallVerdict};
use crate::registrar::HookImplementation;
use crate::{AsyncMode, HookError, HookPoint};

/// Decision of the chain about a request to a model.
#[derive(Debug, Clone, PartialEq)]
pub enum LlmDecision {
    /// Send this request.
    Send(Arc<ModelRequest>),
    /// Send no request and use this output.
    Finish(Box<ModelOutput>),
}

/// Decision of the chain about a tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolDecision {
    /// Call the tool with these arguments.
    Call(Arc<JsonObject>),
    /// Do not call the tool and use this output.
    Return(ToolOutput),
}

/// Runs the interception hooks as a chain: each plugin sees the result of the plugins of higher priority.
///
/// The failure of a plugin is logged and its answer skipped, unless it registered as
/// [fail-closed](crate::HookRegistrar::fail_closed).
#[derive(Clone, Copy)]
pub struct InterceptorChain<'a> {
    caller: &'a HookCaller,
}

impl<'a> InterceptorChain<'a> {
    pub(crate) fn new(caller: &'a HookCaller) -> Self {
        Self { caller }
    }

    /// Runs `before_llm_call` for a request.
    pub async fn before_llm_call(&self, mut args: BeforeLlmCallArgs) -> Result<LlmDecision, HookError> {
        for implementation in self.caller.registry().implementations::<BeforeLlmCall>() {
            match self.intercept(implementation, &args).await? {
                None => {}
                Some(LlmCallVerdict::Change(request)) => args.request = LlmRequest(Arc::new(request)),
                Some(LlmCallVerdict::Finish(output)) => return Ok(LlmDecision::Finish(Box::new(output))),
            }
        }
        Ok(LlmDecision::Send(args.request.0))
    }

    /// Runs `before_tool_call` for a tool call.
    pub async fn before_tool_call(&self, mut args: BeforeToolCallArgs) -> Result<ToolDecision, HookError> {
        for implementation in self.caller.registry().implementations::<BeforeToolCall>() {
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

    /// Runs `after_llm_call` with the outcome of a model call.
    pub async fn after_llm_call(&self, args: &AfterLlmCallArgs) -> Result<(), HookError> {
        for implementation in self.caller.registry().implementations::<AfterLlmCall>() {
            self.intercept(implementation, args).await?;
        }
        Ok(())
    }

    /// Runs `after_tool_call` with the output of a tool, and returns the final output.
    pub async fn after_tool_call(&self, mut args: AfterToolCallArgs) -> Result<Arc<ToolOutput>, HookError> {
        for implementation in self.caller.registry().implementations::<AfterToolCall>() {
            if let Some(output) = self.intercept(implementation, &args).await? {
                args.outcome = ToolOutcome(Arc::new(output));
            }
        }
        Ok(args.outcome.0)
    }

    /// Calls one plugin and applies its failure policy.
    async fn intercept<P: HookPoint<Mode = AsyncMode>>(
        &self,
        implementation: &HookImplementation<P>,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookError> {
        match self.caller.call(implementation, args).await {
            Err(failure) if !implementation.fail_closed => {
                tracing::warn!(hook = failure.hook, plugin = %failure.plugin, reason = %failure.reason, "interception skipped");
                Ok(None)
            }
            answer => answer,
        }
    }
}
