//! Platform actions other than sending messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Description of an action that a channel can perform on its platform.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActionSpec {
    /// Name that requests use: `message.delete`, `member.mute`.
    pub name: String,
    /// Effect of the action, for people.
    pub description: String,
    /// JSON Schema of the arguments. The channel never receives arguments that violate it.
    pub parameters: Value,
}

impl ActionSpec {
    /// Describes an action with the JSON Schema of its arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self { name: name.into(), description: description.into(), parameters }
    }
}
