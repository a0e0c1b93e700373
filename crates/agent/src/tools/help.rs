//! `help`: lists the tools.

use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::{ToolOutput, ToolSpec};
use serde_json::Value;

use super::typed_tool::{NoArguments, typed_tool};

pub(super) fn tool() -> FnTool {
    typed_tool("help", "Lists the tools and how to call them.", |_: NoArguments, context: ToolContext| async move {
        let tools = context.api.tools.list().await.map_err(|error| ToolError::new(error.to_string()))?;
        let mut lines = vec!["Type ,NAME ARGUMENTS to run a tool yourself:".to_owned()];
        lines.extend(tools.iter().map(|tool| format!("  ,{}\n      {}", usage(tool), tool.description)));
        Ok(ToolOutput::ok(lines.join("\n")))
    })
}

/// Formats a tool's name with its parameters, optional ones in brackets.
fn usage(tool: &ToolSpec) -> String {
    let required: Vec<&str> = tool
        .parameters
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let parameters = tool.parameters.get("properties").and_then(Value::as_object);
    let words = parameters
        .into_iter()
        .flat_map(serde_json::Map::keys)
        .map(|name| if required.contains(&name.as_str()) { format!("{name}=…") } else { format!("[{name}=…]") });
    std::iter::once(tool.name.to_string()).chain(words).collect::<Vec<_>>().join(" ")
}
