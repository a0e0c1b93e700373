//! Tools as data: specifications, calls and outputs.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Content, JsonObject};

/// Name of a tool, such as `fs.read`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ToolName(String);

impl ToolName {
    /// Tool name with this text.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Name as users write it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Name for models, with `_` for `.`, because providers do not allow dots.
    pub fn model_name(&self) -> String {
        self.0.replace('.', "_")
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for ToolName {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// Description of a tool, for models and for `help`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolSpec {
    /// Name of the tool.
    pub name: ToolName,
    /// Purpose of the tool, in one or two sentences.
    pub description: String,
    /// JSON Schema of the arguments, an object. Shared, because every request contains all schemas.
    pub parameters: Arc<Value>,
}

/// Tool call, as a model requests it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// Id of the call; a provider may reuse ids.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type", default = "function_type")]
    pub kind: String,
    /// Tool and arguments of a call.
    pub function: ToolFunction,
    /// Other keys, and opaque provider data.
    #[serde(flatten)]
    pub extra: JsonObject,
}

fn function_type() -> String {
    "function".to_owned()
}

/// Tool and arguments of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFunction {
    /// Name of the tool, as given to the model.
    pub name: String,
    /// Arguments as JSON text of the model, which may be invalid.
    pub arguments: String,
}

impl ToolCall {
    /// Tool call with arguments as JSON text.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            kind: function_type(),
            function: ToolFunction { name: name.into(), arguments: arguments.into() },
            extra: JsonObject::new(),
        }
    }
}

/// Output of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolOutput {
    /// Content for the model.
    pub content: Content,
    /// True if the call failed.
    #[serde(default)]
    pub is_error: bool,
}

impl ToolOutput {
    /// Output of a successful call.
    pub fn ok(content: impl Into<Content>) -> Self {
        Self { content: content.into(), is_error: false }
    }

    /// Error that the model can react to.
    pub fn error(message: impl Into<String>) -> Self {
        Self { content: Content::Text(message.into()), is_error: true }
    }

    /// Text of the output.
    pub fn text(&self) -> String {
        self.content.text()
    }
}
