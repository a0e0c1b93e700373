//! Tools whose executions are counted outside the process.

use std::sync::Arc;
use std::time::Duration;

use capstan::hooks::contracts::{FnTool, Tool, ToolContext, ToolError};
use capstan::protocol::{JsonObject, ToolOutput};
use serde_json::{Value, json};

use crate::trial_dir::TrialDir;

/// How often a tool that watches looks whether its gate is open.
const GATE_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// `effect` has an effect, `look` only looks, and `watch` only looks too, until its gate is open.
pub fn crash_tools(place: &TrialDir) -> Vec<Arc<dyn Tool>> {
    let schema = || json!({"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]});
    let tool = |name: &'static str, about: &str| {
        let place = place.clone();
        FnTool::new(name, about, schema(), move |arguments, context| run_tool(place.clone(), name, arguments, context))
    };
    vec![
        Arc::new(tool("effect", "Has an effect.")),
        Arc::new(tool("look", "Only looks.").with_read_only()),
        Arc::new(tool("watch", "Only looks, until its gate is open.").with_read_only()),
    ]
}

async fn run_tool(
    place: TrialDir,
    tool: &str,
    arguments: JsonObject,
    context: ToolContext,
) -> Result<ToolOutput, ToolError> {
    let key = arguments.get("key").and_then(Value::as_str).ok_or_else(|| ToolError::new("give a key"))?;
    place.record_execution(tool, key).map_err(|error| ToolError::new(error.to_string()))?;
    if tool == "watch" {
        tokio::select! {
            () = wait_for_gate(&place, key) => {}
            () = context.cancel_token.cancelled() => return Err(ToolError::new("cancelled")),
        }
    }
    Ok(ToolOutput::ok(format!("{tool} of {key} is done")))
}

/// Waits until a gate is open.
pub async fn wait_for_gate(place: &TrialDir, key: &str) {
    let gate = place.gate_file(key);
    while !gate.exists() {
        tokio::time::sleep(GATE_POLL_INTERVAL).await;
    }
}
