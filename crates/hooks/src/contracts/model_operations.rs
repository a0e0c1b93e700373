//! Ways to use a model other than to read its answer as it comes.

use capstan_protocol::{ApiError, ApiErrorCode, ModelId, ModelOutput, ToolSpec};
use serde::{Deserialize, Serialize};

use super::model::{INCOMPLETE_STREAM_MESSAGE, try_collect_output};
use super::{ModelCall, ModelResultStream};

/// How many tokens something has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCount {
    /// How many.
    pub tokens: u64,
    /// It was reckoned from the length of the text, and not counted by the model's own tokenizer.
    pub estimated: bool,
}

/// Texts to be ordered by how well they fit a question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RerankCall {
    /// Which model; the host's own choice when absent.
    pub model: Option<ModelId>,
    /// The question.
    pub query: String,
    /// The texts.
    pub documents: Vec<String>,
}

/// How well a text fits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RerankScore {
    /// Which of the texts, from 0 on.
    pub index: usize,
    /// How well it fits: more is better.
    pub score: f64,
}

/// How many bytes of text count as a token where nobody has counted.
const BYTES_PER_TOKEN: u64 = 4;

impl TokenCount {
    /// How many tokens a call would send, from the length of its text.
    pub fn estimate(call: &ModelCall) -> Self {
        Self::from_text_bytes(call.text_bytes())
    }

    /// How many tokens so much text is.
    pub fn from_text_bytes(bytes: u64) -> Self {
        Self { tokens: bytes.div_ceil(BYTES_PER_TOKEN), estimated: true }
    }
}

impl ModelCall {
    /// How long what is sent is, as far as it is text.
    pub fn text_bytes(&self) -> u64 {
        self.message_bytes() + tool_spec_bytes(&self.tools)
    }

    /// The same without the tools.
    pub fn message_bytes(&self) -> u64 {
        let messages = self.messages.iter().map(|message| {
            let calls = message.tool_calls.iter().map(|call| call.function.name.len() + call.function.arguments.len());
            message.content.text().len() + calls.sum::<usize>()
        });
        (self.system.len() + messages.sum::<usize>()) as u64
    }
}

/// How long the descriptions and schemas of tools are.
pub fn tool_spec_bytes(tools: &[ToolSpec]) -> u64 {
    tools.iter().map(|tool| tool.description.len() + tool.parameters.to_string().len()).sum::<usize>() as u64
}

/// Collects an answer to its end. One that ends without [`ModelEvent::Stop`](super::ModelEvent::Stop) is an error: what
/// came may be half.
pub(super) async fn collect_api_output(results: ModelResultStream) -> Result<ModelOutput, ApiError> {
    try_collect_output(results)
        .await?
        .ok_or_else(|| ApiError::new(ApiErrorCode::RuntimeError, INCOMPLETE_STREAM_MESSAGE))
}

/// No provider of models orders texts.
pub(super) fn rerank_unsupported() -> ApiError {
    ApiError::new(ApiErrorCode::NotFound, "no provider of models here can order texts by how well they fit")
}
