//! What can be done on a platform beside sending messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An action that a channel can do on its platform, as it describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActionSpec {
    /// What it is asked for by: `message.delete`, `member.mute`.
    pub name: String,
    /// What it does, for people.
    pub description: String,
    /// What its arguments must look like, as a JSON Schema. The channel is never asked with others.
    pub parameters: Value,
}

impl ActionSpec {
    /// An action of this name and description, with this JSON Schema of its arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self { name: name.into(), description: description.into(), parameters }
    }
}
