//! Adds a tool that models can call, and people as the comma command `,text.reverse`.
//!
//! The demo model calls it when it reads `[[tool:text.reverse text=abc]]`.

use std::sync::Arc;

use capstan::hooks::contracts::{FnTool, Tool, ToolContext, ToolError};
use capstan::hooks::points::ProvideTools;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use capstan::protocol::{JsonObject, ToolOutput};
use serde_json::{Value, json};

/// Plugin that provides `text.reverse`.
pub struct ReversePlugin;

impl Plugin for ReversePlugin {
    fn name(&self) -> &'static str {
        "reverse"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        hooks.on_sync(ProvideTools, || {
            let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
            let tool = FnTool::new("text.reverse", "Reverses a text.", schema, reverse);
            Ok(Some(vec![Arc::new(tool) as Arc<dyn Tool>]))
        });
        Ok(())
    }
}

async fn reverse(arguments: JsonObject, _context: ToolContext) -> Result<ToolOutput, ToolError> {
    let text =
        arguments.get("text").and_then(Value::as_str).ok_or_else(|| ToolError::new("the argument text is missing"))?;
    Ok(ToolOutput::ok(text.chars().rev().collect::<String>()))
}
