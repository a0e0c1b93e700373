//! What a turn emits while its model stage is still running.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{JsonObject, ToolCall, ToolOutput};

/// One event of the model stage, as a channel sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StreamEvent {
    /// More of the reply.
    Text {
        /// What was added.
        delta: String,
    },
    /// More of the model's reasoning.
    Reasoning {
        /// What was added.
        delta: String,
    },
    /// A tool is about to be called.
    ToolCall {
        /// The call.
        call: ToolCall,
    },
    /// A tool answered.
    ToolResult {
        /// The id of the call it answers.
        call_id: String,
        /// The tool that answered.
        name: String,
        /// What it said.
        output: ToolOutput,
    },
    /// What a model call used.
    Usage {
        /// The figures of that call.
        usage: Usage,
    },
    /// The model could not be asked, and is asked again after a while. Over with the next event of the run.
    Waiting {
        /// Why, fit to be shown.
        reason: String,
        /// For how long.
        seconds: f64,
    },
    /// Something went wrong.
    Error {
        /// What happened, fit to be shown.
        message: String,
    },
    /// The end: the whole text, and whether the run succeeded.
    Final {
        /// The whole reply.
        text: String,
        /// Whether the run succeeded.
        ok: bool,
    },
}

impl StreamEvent {
    /// A text event.
    pub fn text(delta: impl Into<String>) -> Self {
        Self::Text { delta: delta.into() }
    }

    /// An error event.
    pub fn error(message: impl Into<String>) -> Self {
        Self::Error { message: message.into() }
    }
}

/// Tokens as the provider reported them; what it did not report is unknown, not zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Tokens of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    /// Both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// What else the provider reported.
    #[serde(flatten)]
    pub extra: JsonObject,
}

impl Usage {
    /// The sum of two calls; a figure one of them lacks stays as the other has it.
    pub fn plus(&self, other: &Self) -> Self {
        let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (known, None) | (None, known) => known,
        };
        Self {
            prompt_tokens: add(self.prompt_tokens, other.prompt_tokens),
            completion_tokens: add(self.completion_tokens, other.completion_tokens),
            total_tokens: add(self.total_tokens, other.total_tokens),
            extra: JsonObject::new(),
        }
    }
}
