//! Tools as data: what a model is told of them, how it calls them, what they answer.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Content, JsonObject};

/// The name of a tool, such as `fs.read`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ToolName(String);

impl ToolName {
    /// Names a tool.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name as people write it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as a model sees it: providers allow no dot, so it has `_` in its place.
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

/// What a tool is, for a model and for `help`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolSpec {
    /// Its name.
    pub name: ToolName,
    /// What it does, in a sentence or two.
    pub description: String,
    /// The JSON Schema of its arguments, an object. Shared, since every request has all of them.
    pub parameters: Arc<Value>,
}

/// A call of a tool, as a model makes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// Names the call; a server may use an id again.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type", default = "function_type")]
    pub kind: String,
    /// The tool and its arguments.
    pub function: ToolFunction,
    /// Keys this type has no field for, and opaque provider data.
    #[serde(flatten)]
    pub extra: JsonObject,
}

fn function_type() -> String {
    "function".to_owned()
}

/// The tool and its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFunction {
    /// The tool, by the name the model was given.
    pub name: String,
    /// The arguments as JSON text, as the model wrote it: it may be invalid.
    pub arguments: String,
}

impl ToolCall {
    /// A call of a tool with arguments.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            kind: function_type(),
            function: ToolFunction { name: name.into(), arguments: arguments.into() },
            extra: JsonObject::new(),
        }
    }
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolOutput {
    /// What the model gets to read.
    pub content: Content,
    /// Whether it is an error.
    #[serde(default)]
    pub is_error: bool,
}

impl ToolOutput {
    /// A result.
    pub fn ok(content: impl Into<Content>) -> Self {
        Self { content: content.into(), is_error: false }
    }

    /// An error the model can react to.
    pub fn error(message: impl Into<String>) -> Self {
        Self { content: Content::Text(message.into()), is_error: true }
    }

    /// The text of the output.
    pub fn text(&self) -> String {
        self.content.text()
    }
}
