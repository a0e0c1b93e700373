//! Tools with typed arguments: the type yields the JSON Schema, and invalid arguments are explained to the model.

use std::future::Future;

use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::{ApiError, JsonObject, ToolOutput};
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Creates a tool whose arguments are deserialized into `A`.
pub(super) fn typed_tool<A, F, Fut>(name: &'static str, description: &str, action: F) -> FnTool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(A, ToolContext) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    FnTool::new(name, description, schema::<A>(), move |arguments: JsonObject, context| {
        let action = action.clone();
        async move {
            let arguments = serde_json::from_value(Value::Object(arguments))
                .map_err(|error| ToolError::new(format!("invalid arguments for {name}: {error}")))?;
            action(arguments, context).await
        }
    })
}

/// Converts an error of the run API to a tool error with its message.
pub(super) fn to_tool_error(error: ApiError) -> ToolError {
    ToolError::new(error.message)
}

/// Returns the schema in the form providers expect: an object with properties, without title and description of the
/// Rust type.
fn schema<A: JsonSchema>() -> Value {
    let mut schema = schema_for!(A).to_value();
    if let Value::Object(map) = &mut schema {
        map.remove("$schema");
        map.remove("title");
        map.remove("description");
        map.entry("properties").or_insert_with(|| Value::Object(JsonObject::new()));
    }
    schema
}

/// Arguments of a tool that takes none.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoArguments {}
