//! Messages as a model reads them, in the form of OpenAI chat.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Content, JsonObject, ToolCall};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    /// The host or the operator.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool.
    Tool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: MessageRole,
    /// What is said; empty on a message that only calls tools.
    #[serde(default)]
    pub content: Content,
    /// The calls an assistant message makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The tool that answered, or the name of the speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Keys this type has no field for, and opaque provider data.
    #[serde(flatten)]
    pub extra: JsonObject,
}

impl ChatMessage {
    fn new(role: MessageRole, content: Content) -> Self {
        Self { role, content, tool_calls: Vec::new(), tool_call_id: None, name: None, extra: JsonObject::new() }
    }

    /// A message of the person.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new(MessageRole::User, content.into())
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::new(MessageRole::Assistant, content.into())
    }

    /// An assistant message that calls tools.
    pub fn from_tool_calls(tool_calls: Vec<ToolCall>) -> Self {
        Self { tool_calls, ..Self::new(MessageRole::Assistant, Content::default()) }
    }

    /// The answer of a tool.
    pub fn tool_result(call_id: impl Into<String>, name: impl Into<String>, content: impl Into<Content>) -> Self {
        Self {
            tool_call_id: Some(call_id.into()),
            name: Some(name.into()),
            ..Self::new(MessageRole::Tool, content.into())
        }
    }

    /// The message as a JSON object, as it stands in the payload of a `message` entry.
    pub fn to_payload(&self) -> JsonObject {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            // A struct of strings, maps and lists always serialises to an object.
            Ok(_) | Err(_) => JsonObject::new(),
        }
    }
}
