//! Plugins and texts shared by the tests of sessions.

use std::sync::Arc;

use capstan_hooks::args::PromptContent;
use capstan_hooks::contracts::{FnTool, Tool, ToolContext};
use capstan_hooks::points::{ProvideTools, RunModel};
use capstan_host::testing::ClosurePlugin;
use capstan_protocol::{JsonObject, Outcome, ToolOutput};
use capstan_testing::ReplyBarrier;
use serde_json::json;

/// Plugin with a tool `hold`, which waits for the release of `barrier` and returns `held`.
pub fn hold_tool_plugin(barrier: &ReplyBarrier) -> ClosurePlugin {
    let barrier = barrier.clone();
    ClosurePlugin::new("hold", move |hooks| {
        let barrier = barrier.clone();
        let action = move |_: JsonObject, _: ToolContext| {
            let barrier = barrier.clone();
            async move {
                barrier.wait_for_release().await;
                Ok(ToolOutput::ok("held"))
            }
        };
        let schema = json!({"type": "object", "properties": {}});
        let tool: Arc<dyn Tool> = Arc::new(FnTool::new("hold", "Waits.", schema, action));
        hooks.on_sync(ProvideTools, move || Ok(Some(vec![Arc::clone(&tool)])));
    })
}

/// Outcome as a short text.
pub fn format_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Replied { text } => format!("replied: {text}"),
        Outcome::Failed { notice, .. } => format!("failed: {notice}"),
        other => other.name().to_owned(),
    }
}

/// Plugin whose model stage echoes the prompt after the release of `barrier`.
pub fn blocking_echo_plugin(barrier: &ReplyBarrier) -> ClosurePlugin {
    let barrier = barrier.clone();
    ClosurePlugin::new("echo", move |hooks| {
        let barrier = barrier.clone();
        hooks.on(RunModel, move |prompt: PromptContent| {
            let barrier = barrier.clone();
            async move {
                barrier.wait_for_release().await;
                Ok(Some(format!("re: {}", prompt.text())))
            }
        });
    })
}
