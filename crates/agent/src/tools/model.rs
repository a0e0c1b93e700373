//! `model`: the model of the session.

use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::{ApiError, ModelId, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed_tool::typed_tool;

/// The name that means the host's own choice.
const DEFAULT_MODEL_NAME: &str = "default";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ModelToolArgs {
    /// The model to use in this conversation from now on, as provider:name; `default` is the one that is configured.
    name: Option<String>,
}

pub(super) fn tool() -> FnTool {
    let description = "Tells which model this conversation uses. Only people, with a command, choose another one.";
    typed_tool("model", description, |arguments: ModelToolArgs, context: ToolContext| async move {
        let refused = |error: ApiError| ToolError::new(error.message);
        let api = &context.api;
        match arguments.name.as_deref() {
            None => {
                let chosen = api.session.model().await.map_err(refused)?;
                Ok(ToolOutput::ok(match chosen {
                    Some(model) => format!("{model} (chosen for this conversation)"),
                    None => format!("{} (the default)", api.models.default_model()),
                }))
            }
            Some(DEFAULT_MODEL_NAME) => {
                api.session.choose_model(None).await.map_err(refused)?;
                Ok(ToolOutput::ok(format!("this conversation uses {} (the default)", api.models.default_model())))
            }
            Some(name) => {
                let model: ModelId = name.parse().map_err(|error| ToolError::new(format!("{error}")))?;
                api.session.choose_model(Some(model)).await.map_err(refused)?;
                Ok(ToolOutput::ok(format!("this conversation uses {name} from now on")))
            }
        }
    })
}
