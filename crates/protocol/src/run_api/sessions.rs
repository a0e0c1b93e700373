//! Requests of `prompt.*` and `session.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ModelId;

/// Request for the prompt of a further step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContinuationCall {
    /// Number of the step that follows.
    pub step: u32,
}

/// Choice of the session's model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelChoiceCall {
    /// Model of the session from the next call on; absent: the host's default model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelId>,
}
