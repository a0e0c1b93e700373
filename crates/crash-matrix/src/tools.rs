//! Tools whose executions are recorded outside the process.

use std::sync::Arc;
use std::time::Duration;

use capstan::hooks::contracts::{FnTool, Tool, ToolContext, ToolError};
use capstan::protocol::{JsonObject, ToolOutput};
use serde_json::{Value, json};

use crate::trial_dir::TrialDir;

/// Poll interval of a tool that waits for its barrier.
const GATE_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Creates the tools: `effect` has an effect, `look` is read-only, and `watch` is read-only and waits for its barrier.
pub fn crash_tools(trial_dir: &TrialDir) -> Vec<Arc<dyn Tool>> {
    let schema = || json!({"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]});
    let tool = |name: &'static str, description: &str| {
        let trial_dir = trial_dir.clone();
        FnTool::new(name, description, schema(), move |arguments, context| {
            run_tool(trial_dir.clone(), name, arguments, context)
        })
    };
    vec![
        Arc::new(tool("effect", "Has an effect.")),
        Arc::new(tool("look", "Has no effect.").with_read_only()),
        Arc::new(tool("watch", "Waits for its barrier, without an effect.").with_read_only()),
    ]
}

async fn run_tool(
    trial_dir: TrialDir,
    tool: &str,
    arguments: JsonObject,
    context: ToolContext,
) -> Result<ToolOutput, ToolError> {
    let key =
        arguments.get("key").and_then(Value::as_str).ok_or_else(|| ToolError::new("the argument key is missing"))?;
    trial_dir.record_execution(tool, key).map_err(|error| ToolError::new(error.to_string()))?;
    if tool == "watch" {
        tokio::select! {
            () = wait_for_barrier(&trial_dir, key) => {}
            () = context.cancel_token.cancelled() => return Err(ToolError::new("cancelled")),
        }
    }
    Ok(ToolOutput::ok(format!("{tool} of {key} is done")))
}

/// Waits until a barrier is open.
pub async fn wait_for_barrier(trial_dir: &TrialDir, key: &str) {
    let barrier = trial_dir.barrier_file(key);
    while !barrier.exists() {
        tokio::time::sleep(GATE_POLL_INTERVAL).await;
    }
}
