//! Requests and responses of `models.*`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ChatMessage, JsonObject, ModelId, ModelOptions, ToolCall, ToolSpec, Usage};

/// Request to a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelCall {
    /// Model to ask; absent: the host's default model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelId>,
    /// System prompt; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// The conversation.
    #[serde(default)]
    pub messages: Vec<ChatMessage>,
    /// Tools that the model may call.
    #[serde(default)]
    pub tools: Arc<[ToolSpec]>,
    /// Options of the call; absent ones are those of the host.
    #[serde(default, skip_serializing_if = "is_default")]
    pub options: ModelOptions,
    /// Models to try, in order, if the model fails before the first token of its reply; absent: those of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallbacks: Option<Vec<ModelId>>,
}

fn is_default(options: &ModelOptions) -> bool {
    *options == ModelOptions::default()
}

/// One event of a model's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum ModelEvent {
    /// Next piece of the text.
    Text(String),
    /// Next piece of the reasoning.
    Reasoning(String),
    /// A complete tool call.
    ToolCall(ToolCall),
    /// Tokens that the call used.
    Usage(Usage),
    /// Opaque provider data that later requests must include with this message.
    ProviderMeta(JsonObject),
    /// The answer reached the token limit and is incomplete. A tool call whose arguments are not a JSON object was cut
    /// off and must not be made.
    Truncated,
    /// The answer is complete.
    Stop,
}

/// Models that a run may ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelDirectory {
    /// Model for calls that name none, if the grant covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<ModelId>,
    /// Configured models, the default one first.
    pub models: Vec<ModelId>,
    /// Names of the providers.
    pub providers: Vec<String>,
}

/// Number of tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenCount {
    /// Number of tokens.
    pub tokens: u64,
    /// Estimated from the length of the text, not counted by the model's own tokenizer.
    pub estimated: bool,
}

/// Texts to be ranked by relevance to a query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RerankCall {
    /// Model to ask; absent: the host's default model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelId>,
    /// The query.
    pub query: String,
    /// The texts.
    #[serde(default)]
    pub documents: Vec<String>,
}

/// Relevance of one text.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RerankScore {
    /// Position of the text in the request, from 0.
    pub index: usize,
    /// Relevance: higher is better.
    pub score: f64,
}

/// Bytes of text that count as one token where no tokenizer is known.
const BYTES_PER_TOKEN: u64 = 4;

impl TokenCount {
    /// Estimates the tokens of a request from the length of its text.
    pub fn estimate(call: &ModelCall) -> Self {
        Self::from_text_bytes(call.text_bytes())
    }

    /// Estimates the tokens of a text of this length.
    pub fn from_text_bytes(bytes: u64) -> Self {
        Self { tokens: bytes.div_ceil(BYTES_PER_TOKEN), estimated: true }
    }
}

impl ModelCall {
    /// Length of the text that is sent, including the tools.
    pub fn text_bytes(&self) -> u64 {
        self.message_bytes() + tool_spec_bytes(&self.tools)
    }

    /// Length of the text that is sent, without the tools.
    pub fn message_bytes(&self) -> u64 {
        let messages = self.messages.iter().map(|message| {
            let calls = message.tool_calls.iter().map(|call| call.function.name.len() + call.function.arguments.len());
            message.content.text().len() + calls.sum::<usize>()
        });
        (self.system.len() + messages.sum::<usize>()) as u64
    }
}

/// Length of the descriptions and schemas of tools.
pub fn tool_spec_bytes(tools: &[ToolSpec]) -> u64 {
    tools.iter().map(|tool| tool.description.len() + tool.parameters.to_string().len()).sum::<usize>() as u64
}
