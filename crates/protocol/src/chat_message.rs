//! Messages for models, in the format of OpenAI chat completions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Content, JsonObject, ToolCall};

/// Role of a message's author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    /// The host or the operator.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool.
    Tool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChatMessage {
    /// Role of a message's author.
    pub role: MessageRole,
    /// Content of the message; empty if the message only calls tools.
    #[serde(default)]
    pub content: Content,
    /// Tool calls of an assistant message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Id of the call that a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the tool that answered, or of the author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Other keys, and opaque provider data.
    #[serde(flatten)]
    pub extra: JsonObject,
}

impl ChatMessage {
    fn new(role: MessageRole, content: Content) -> Self {
        Self { role, content, tool_calls: Vec::new(), tool_call_id: None, name: None, extra: JsonObject::new() }
    }

    /// Message of the user.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new(MessageRole::User, content.into())
    }

    /// Message of the model.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::new(MessageRole::Assistant, content.into())
    }

    /// Assistant message that calls tools.
    pub fn from_tool_calls(tool_calls: Vec<ToolCall>) -> Self {
        Self { tool_calls, ..Self::new(MessageRole::Assistant, Content::default()) }
    }

    /// Result of a tool call.
    pub fn tool_result(call_id: impl Into<String>, name: impl Into<String>, content: impl Into<Content>) -> Self {
        Self {
            tool_call_id: Some(call_id.into()),
            name: Some(name.into()),
            ..Self::new(MessageRole::Tool, content.into())
        }
    }

    /// Message as a JSON object: the payload of a `message` entry.
    pub fn to_payload(&self) -> JsonObject {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            // A struct of strings, maps and lists always serialises to an object.
            Ok(_) | Err(_) => JsonObject::new(),
        }
    }
}
