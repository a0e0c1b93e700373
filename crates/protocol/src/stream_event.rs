//! Stream events: progress of a turn while its model stage is running.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FailureCode, JsonObject, ToolCall, ToolOutput};

/// Event of the model stage, as sent to channels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StreamEvent {
    /// Next piece of the reply.
    Text {
        /// Added text.
        delta: String,
    },
    /// Next piece of the model's reasoning.
    Reasoning {
        /// Added text.
        delta: String,
    },
    /// A tool call is about to start.
    ToolCall {
        /// The call.
        call: ToolCall,
    },
    /// A tool call has ended.
    ToolResult {
        /// Id of the call.
        call_id: String,
        /// Name of the tool.
        name: String,
        /// Output of the tool.
        output: ToolOutput,
    },
    /// Token usage of a model call.
    Usage {
        /// Usage of this call.
        usage: Usage,
    },
    /// A model call failed and will be retried. The wait ends with the next event of the run.
    Waiting {
        /// Reason that may be shown to users.
        reason: String,
        /// Code of the failure, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<FailureCode>,
        /// Delay before the retry.
        seconds: f64,
    },
    /// An error occurred.
    Error {
        /// Description that may be shown to users.
        message: String,
        /// Code of the failure, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<FailureCode>,
    },
    /// End of the stream.
    Final {
        /// Complete reply.
        text: String,
        /// True if the run succeeded.
        ok: bool,
    },
}

impl StreamEvent {
    /// Text event.
    pub fn text(delta: impl Into<String>) -> Self {
        Self::Text { delta: delta.into() }
    }

    /// Error event.
    pub fn error(message: impl Into<String>) -> Self {
        Self::Error { message: message.into(), code: None }
    }

    /// Event for a chat: the text of a provider, which may contain addresses and paths, is replaced by the public
    /// message of its code.
    ///
    /// ```
    /// use capstan_protocol::{ErrorCode, StreamEvent};
    ///
    /// let code = Some(ErrorCode::ModelRejected.into());
    /// let event = StreamEvent::Error { message: "http://10.0.0.7 answered 400".to_owned(), code };
    /// let StreamEvent::Error { message, .. } = event.to_public() else { unreachable!() };
    /// assert!(message.ends_with("(model-rejected)"));
    /// ```
    #[must_use]
    pub fn to_public(&self) -> Self {
        let mut event = self.clone();
        if let Self::Error { message: text, code } | Self::Waiting { reason: text, code, .. } = &mut event
            && let Some(public) = code.as_ref().and_then(FailureCode::public_message)
        {
            *text = public;
        }
        event
    }
}

/// Token counts as reported by the provider; an absent count is unknown, not zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Number of tokens in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Number of tokens in the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    /// Number of tokens in request and reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// Other figures from the provider.
    #[serde(flatten)]
    pub extra: JsonObject,
}

impl Usage {
    /// Sum of the usage of two calls. A count that one of them lacks is taken from the other.
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
