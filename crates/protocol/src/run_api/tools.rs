//! Requests of `tools.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{JsonObject, ToolCall};

/// Request for the description and schema of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolDetailCall {
    /// Name of the tool, or the name that a model was given for it.
    pub name: String,
}

/// Tool calls of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolStepCall {
    /// The calls, in the order of the model.
    pub calls: Vec<ToolCall>,
}

/// A comma command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandCall {
    /// The line as typed, without the comma.
    pub raw: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments of the tool.
    #[serde(default)]
    pub arguments: JsonObject,
}

/// A comma command that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRefusalCall {
    /// The line as typed, without the comma.
    pub raw: String,
    /// Reason that may be shown to users.
    pub reason: String,
}
