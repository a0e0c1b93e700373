//! Tools whose executions are counted outside the process.

use std::sync::Arc;
use std::time::Duration;

use capstan::hooks::contracts::{FnTool, Tool, ToolContext, ToolError};
use capstan::protocol::{Map, ToolOutput};
use serde_json::{Value, json};

use crate::place::Place;

/// How often a tool that watches looks whether its gate is open.
const POLL: Duration = Duration::from_millis(1);

/// `effect` has an effect, `look` only looks, and `watch` only looks too, until its gate is open.
pub fn all(place: &Place) -> Vec<Arc<dyn Tool>> {
    let schema = || json!({"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]});
    let tool = |name: &'static str, about: &str| {
        let place = place.clone();
        FnTool::new(name, about, schema(), move |arguments, context| call(place.clone(), name, arguments, context))
    };
    vec![
        Arc::new(tool("effect", "Has an effect.")),
        Arc::new(tool("look", "Only looks.").that_only_looks()),
        Arc::new(tool("watch", "Only looks, until its gate is open.").that_only_looks()),
    ]
}

async fn call(place: Place, tool: &str, arguments: Map, context: ToolContext) -> Result<ToolOutput, ToolError> {
    let key = arguments.get("key").and_then(Value::as_str).ok_or_else(|| ToolError::new("give a key"))?;
    place.execute(tool, key).map_err(|error| ToolError::new(error.to_string()))?;
    if tool == "watch" {
        tokio::select! {
            () = wait_at(&place, key) => {}
            () = context.cancelled.cancelled() => return Err(ToolError::new("cancelled")),
        }
    }
    Ok(ToolOutput::ok(format!("{tool} of {key} is done")))
}

/// Waits until a gate is open.
pub async fn wait_at(place: &Place, key: &str) {
    let gate = place.gate(key);
    while !gate.exists() {
        tokio::time::sleep(POLL).await;
    }
}
