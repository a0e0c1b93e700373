//! Adds a tool: a model can call it, and so can a person, as the comma command `,text.reverse`.
//!
//! The demo model calls it when it reads `[[tool:text.reverse text=abc]]`.

use std::sync::Arc;

use capstan::hooks::contracts::{FnTool, Tool, ToolContext, ToolError};
use capstan::hooks::points::ProvideTools;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use capstan::protocol::{JsonObject, ToolOutput};
use serde_json::{Value, json};

/// Brings `text.reverse`.
pub struct ReversePlugin;

impl Plugin for ReversePlugin {
    fn name(&self) -> &'static str {
        "reverse"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        hooks.on_sync(ProvideTools, || {
            let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
            let tool = FnTool::new("text.reverse", "Writes a text backwards.", schema, reverse);
            Ok(Some(vec![Arc::new(tool) as Arc<dyn Tool>]))
        });
        Ok(())
    }
}

async fn reverse(arguments: JsonObject, _context: ToolContext) -> Result<ToolOutput, ToolError> {
    let text = arguments.get("text").and_then(Value::as_str).ok_or_else(|| ToolError::new("give a text"))?;
    Ok(ToolOutput::ok(text.chars().rev().collect::<String>()))
}
