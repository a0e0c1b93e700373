//! `model`: shows or changes the model of the session.

use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::{ModelId, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed_tool::{to_tool_error, typed_tool};

/// Name that stands for the configured default.
const DEFAULT_MODEL_NAME: &str = "default";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ModelToolArgs {
    /// Model to use in this conversation from now on, as provider:name; `default` is the configured one.
    name: Option<String>,
}

pub(super) fn tool() -> FnTool {
    let description = "Shows which model this conversation uses. Only people can choose another one, with a command.";
    typed_tool("model", description, |arguments: ModelToolArgs, context: ToolContext| async move {
        let api = &context.api;
        match arguments.name.as_deref() {
            None => {
                let chosen = api.session.model().await.map_err(to_tool_error)?;
                Ok(ToolOutput::ok(match chosen {
                    Some(model) => format!("{model} (chosen for this conversation)"),
                    None => format!("{} (the default)", api.models.default_model()),
                }))
            }
            Some(DEFAULT_MODEL_NAME) => {
                api.session.choose_model(None).await.map_err(to_tool_error)?;
                Ok(ToolOutput::ok(format!("this conversation uses {} (the default)", api.models.default_model())))
            }
            Some(name) => {
                let model: ModelId = name.parse().map_err(|error| ToolError::new(format!("{error}")))?;
                api.session.choose_model(Some(model)).await.map_err(to_tool_error)?;
                Ok(ToolOutput::ok(format!("this conversation uses {name} from now on")))
            }
        }
    })
}
