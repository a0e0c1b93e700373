//! `subagent`: delegates a task to a child run on a fork of the tape.

use std::time::Duration;

use capstan_hooks::contracts::{ChildRunCall, ChildSession, FnTool, ToolContext, ToolEffect, ToolError};
use capstan_protocol::{AllowList, ModelId, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed_tool::{to_tool_error, typed_tool};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubagentArgs {
    /// Task with all necessary context: by default the subagent sees nothing of this conversation.
    prompt: String,
    /// Context of the subagent besides its task: none (`temp`, the default), or this conversation (`inherit`).
    session: Option<SubagentSession>,
    /// Tools the subagent may call, such as `fs.read`; all of yours by default.
    tools: Option<Vec<String>>,
    /// Model of the subagent, as provider:name; yours by default.
    model: Option<String>,
    /// Maximum number of steps, deducted from yours.
    max_steps: Option<u32>,
    /// Maximum number of tokens, deducted from yours.
    max_tokens: Option<u64>,
    /// Time limit in seconds.
    timeout_seconds: Option<u64>,
    /// Add the subagent's whole work to this conversation when it completes; by default only its answer is.
    merge_back: Option<bool>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum SubagentSession {
    Temp,
    Inherit,
}

impl From<SubagentSession> for ChildSession {
    fn from(session: SubagentSession) -> Self {
        match session {
            SubagentSession::Temp => Self::Temp,
            SubagentSession::Inherit => Self::Inherit,
        }
    }
}

pub(super) fn subagent() -> FnTool {
    let description = "Delegates a task to a subagent, which works on it with the same tools and a context of its own, and \
        returns its final answer. Several calls in one step run concurrently.";
    let subagent = typed_tool("subagent", description, |arguments: SubagentArgs, context: ToolContext| async move {
        let model = arguments.model.as_deref().map(str::parse::<ModelId>).transpose();
        let call = ChildRunCall {
            model: model.map_err(|error| ToolError::new(error.to_string()))?,
            session: arguments.session.map(ChildSession::from).unwrap_or_default(),
            tools: arguments.tools.map_or(AllowList::All, AllowList::only),
            max_steps: arguments.max_steps,
            max_tokens: arguments.max_tokens,
            timeout: arguments.timeout_seconds.map(Duration::from_secs),
            merge_back: arguments.merge_back.unwrap_or_default(),
            ..ChildRunCall::new(arguments.prompt)
        };
        let outcome = context.api.runs.child(call).await.map_err(to_tool_error)?;
        Ok(match outcome.failure {
            None if outcome.text.is_empty() => ToolOutput::ok("(the subagent's answer is empty)"),
            None => ToolOutput::ok(outcome.text),
            Some(failure) => {
                ToolOutput::error(format!("{}\n[the subagent failed: {failure}]", outcome.text).trim_start().to_owned())
            }
        })
    });
    // The subagent acts through its own tool calls, and several subagents are meant to run concurrently.
    subagent.with_effect(|_, _| ToolEffect::None).with_own_deadline()
}
