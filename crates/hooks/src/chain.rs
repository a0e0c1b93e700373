//! The interception hooks: what may change or stop a call, and what sees how it ended.

use std::sync::Arc;

use capstan_protocol::{Map, ModelOutput, ModelRequest, ToolOutput};

use crate::args::{AfterLlmArgs, AfterToolArgs, BeforeLlmArgs, BeforeToolArgs, LlmRequest, PendingTool, ToolOutcome};
use crate::points::{AfterLlmCall, AfterToolCall, BeforeLlm, BeforeLlmCall, BeforeTool, BeforeToolCall};
use crate::registry::Implementation;
use crate::{Async, HookFailure, HookRuntime, Point};

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
    Make(Arc<Map>),
    /// Do not: this is its output.
    Answer(ToolOutput),
}

impl HookRuntime {
    /// Takes a request through `before_llm_call`: each plugin sees what the ones before it made of it.
    pub async fn before_llm_call(&self, mut args: BeforeLlmArgs) -> Result<LlmDecision, HookFailure> {
        for implementation in self.registry().implementations::<BeforeLlmCall>() {
            match self.intercept(implementation, &args).await? {
                None => {}
                Some(BeforeLlm::Change(request)) => args.request = LlmRequest(Arc::new(request)),
                Some(BeforeLlm::Finish(output)) => return Ok(LlmDecision::Finish(Box::new(output))),
            }
        }
        Ok(LlmDecision::Send(args.request.0))
    }

    /// Takes a tool call through `before_tool_call`.
    pub async fn before_tool_call(&self, mut args: BeforeToolArgs) -> Result<ToolDecision, HookFailure> {
        for implementation in self.registry().implementations::<BeforeToolCall>() {
            match self.intercept(implementation, &args).await? {
                None => {}
                Some(BeforeTool::Proceed(arguments)) => {
                    args.call = PendingTool { arguments: Arc::new(arguments), ..args.call };
                }
                Some(BeforeTool::Replace(output)) => return Ok(ToolDecision::Answer(output)),
                Some(BeforeTool::Deny(message)) => return Ok(ToolDecision::Answer(ToolOutput::error(message))),
            }
        }
        Ok(ToolDecision::Make(args.call.arguments))
    }

    /// Shows `after_llm_call` how a call ended.
    pub async fn after_llm_call(&self, args: &AfterLlmArgs) -> Result<(), HookFailure> {
        for implementation in self.registry().implementations::<AfterLlmCall>() {
            self.intercept(implementation, args).await?;
        }
        Ok(())
    }

    /// Shows `after_tool_call` how a call ended, and gives what it answered in the end: each plugin sees what the ones
    /// before it made of it.
    pub async fn after_tool_call(&self, mut args: AfterToolArgs) -> Result<Arc<ToolOutput>, HookFailure> {
        for implementation in self.registry().implementations::<AfterToolCall>() {
            if let Some(output) = self.intercept(implementation, &args).await? {
                args.outcome = ToolOutcome(Arc::new(output));
            }
        }
        Ok(args.outcome.0)
    }

    /// Asks one plugin. Its failure is logged and skipped, unless it declared itself fail-closed.
    async fn intercept<P: Point<Mode = Async>>(
        &self,
        implementation: &Implementation<P>,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookFailure> {
        match self.call(implementation, args).await {
            Err(failure) if !implementation.fail_closed => {
                tracing::warn!(hook = failure.hook, plugin = %failure.plugin, reason = %failure.reason, "interception skipped");
                Ok(None)
            }
            answer => answer,
        }
    }
}
