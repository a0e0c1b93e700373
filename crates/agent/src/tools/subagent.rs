//! `subagent`: a piece of work for another run of the agent, on a fork of the tape.

use std::time::Duration;

use capstan_hooks::contracts::{ChildRunCall, FnTool, ToolContext, ToolEffect, ToolError};
use capstan_protocol::{AllowList, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed_tool::typed_tool;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubagentArgs {
    /// The task, with everything it must know: it sees nothing of this conversation.
    prompt: String,
    /// The tools it may call, such as `fs.read`; without this, all that you may call.
    tools: Option<Vec<String>>,
    /// How many steps it may take, out of yours.
    max_steps: Option<u32>,
    /// How many tokens it may use, out of yours.
    max_tokens: Option<u64>,
    /// How long it may take.
    timeout_seconds: Option<u64>,
}

pub(super) fn subagent() -> FnTool {
    let description = "Gives a task to a subagent, which works on it with the same tools and a context of its own, and \
        gives its final answer. Several calls in one step run at the same time.";
    let subagent = typed_tool("subagent", description, |arguments: SubagentArgs, context: ToolContext| async move {
        let call = ChildRunCall {
            tools: arguments.tools.map_or(AllowList::All, AllowList::only),
            max_steps: arguments.max_steps,
            max_tokens: arguments.max_tokens,
            timeout: arguments.timeout_seconds.map(Duration::from_secs),
            ..ChildRunCall::new(arguments.prompt)
        };
        let end = context.api.runs.child(call).await.map_err(|error| ToolError::new(error.message))?;
        Ok(match end.failure {
            None if end.text.is_empty() => ToolOutput::ok("(the subagent said nothing)"),
            None => ToolOutput::ok(end.text),
            Some(failure) => {
                ToolOutput::error(format!("{}\n[the subagent failed: {failure}]", end.text).trim_start().to_owned())
            }
        })
    });
    // What it does it does through tools of its own, and whoever asks for two of them wants them side by side.
    subagent.with_effect(|_, _| ToolEffect::None).with_own_deadline()
}
