//! Tools with typed arguments: the type gives the schema, and what does not fit it is explained to the model.

use std::future::Future;

use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::{JsonObject, ToolOutput};
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A tool whose arguments are a type.
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
                .map_err(|error| ToolError::new(format!("the arguments of {name} do not fit: {error}")))?;
            action(arguments, context).await
        }
    })
}

/// The schema as providers want it: an object with properties, without the words about the Rust type.
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

/// No arguments.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoArguments {}
