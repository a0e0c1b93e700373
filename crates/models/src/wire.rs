//! Wire protocols of the providers, as pure functions.
//!
//! A [`WireProtocol`] determines the endpoint, encodes request bodies and decodes responses;
//! [`Provider`](crate::Provider) does the I/O in the same way for all of them.
//!
//! # Provider data
//!
//! Data that only its provider understands (signatures of thoughts, encrypted reasoning) is stored under the provider's
//! name in the key `provider` of the `extra` of a message or a call. It is sent back to the model that produced it and
//! to no other.

mod alternating_turns;
mod anthropic;
mod encoded_tools;
mod gemini;
mod message_parts;
mod ollama;
mod openai_chat;
mod openai_responses;
mod provider_data;
mod reasoning_effort;
mod rerank;
mod response_reader;
mod sanitize;
mod usage_counts;

#[cfg(test)]
mod reader_tests;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{JsonObject, ModelOptions, ModelRequest, ToolSpec};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::endpoint::ModelEndpoint;
use crate::frame_decoder::FrameFormat;
pub(crate) use anthropic::BETA_HEADER;
pub(crate) use encoded_tools::EncodedToolsCache;
pub(crate) use provider_data::ModelOrigin;
pub(crate) use rerank::{RerankReader, parse_scores};
pub(crate) use response_reader::{FrameProgress, MAX_HELD_BYTES, MAX_REPLY_CALLS, ResponseReader};
pub(crate) use sanitize::sanitize_request;

/// Wire protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WireProtocol {
    /// `OpenAI` chat completions, and every compatible server.
    OpenAi,
    /// `OpenAI` Responses.
    OpenAiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Google Gemini.
    Gemini,
    /// `OpenRouter`: `OpenAI` chat with its own reasoning options.
    OpenRouter,
    /// Ollama's own protocol.
    Ollama,
}

impl WireProtocol {
    /// All protocols.
    pub const PROTOCOLS: [Self; 6] =
        [Self::OpenAi, Self::OpenAiResponses, Self::Anthropic, Self::Gemini, Self::OpenRouter, Self::Ollama];

    /// Name of the protocol, which is also the name of the provider it belongs to.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::OpenRouter => "openrouter",
            Self::Ollama => "ollama",
        }
    }

    /// Finds the protocol with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::PROTOCOLS.into_iter().find(|wire| wire.name() == name)
    }

    /// Default base URL of its provider.
    pub fn default_base(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta",
            Self::OpenRouter => "https://openrouter.ai/api/v1",
            Self::Ollama => "http://127.0.0.1:11434",
        }
    }

    /// Scheme, host and port of requests with this base URL; `None` if it is invalid.
    pub fn origin(self, base: Option<&str>) -> Option<String> {
        ModelEndpoint::parse(self.name(), self, base).ok().map(|endpoint| endpoint.origin())
    }

    /// True if its provider, at its default address, requires a key.
    pub fn needs_key(self) -> bool {
        self != Self::Ollama
    }

    /// Environment variables that hold the key of its provider; the first one set is used.
    pub fn key_variables(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi | Self::OpenAiResponses => &["OPENAI_API_KEY"],
            Self::Anthropic => &["ANTHROPIC_API_KEY"],
            Self::Gemini => &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
            Self::OpenRouter => &["OPENROUTER_API_KEY"],
            Self::Ollama => &["OLLAMA_API_KEY"],
        }
    }

    /// Environment variables that hold the base URL of its provider.
    pub fn base_variables(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi | Self::OpenAiResponses => &["OPENAI_BASE_URL"],
            Self::Anthropic => &["ANTHROPIC_BASE_URL"],
            Self::Gemini => &["GOOGLE_GEMINI_BASE_URL"],
            Self::OpenRouter => &["OPENROUTER_BASE_URL"],
            Self::Ollama => &["OLLAMA_HOST"],
        }
    }

    /// Headers for authentication, protocol version and beta features.
    pub(crate) fn headers(self, key: Option<&SecretString>, model: &str) -> Vec<(&'static str, SecretString)> {
        let key = key.map(|key| match self {
            Self::OpenAi | Self::OpenAiResponses | Self::OpenRouter | Self::Ollama => {
                ("authorization", SecretString::from(format!("Bearer {}", key.expose_secret())))
            }
            Self::Anthropic => ("x-api-key", key.clone()),
            Self::Gemini => ("x-goog-api-key", key.clone()),
        });
        let version = (self == Self::Anthropic).then_some(("anthropic-version", "2023-06-01"));
        let beta = (self == Self::Anthropic).then(|| anthropic::beta_header(model)).flatten();
        let plain = version.into_iter().chain(beta).map(|(name, value)| (name, SecretString::from(value)));
        key.into_iter().chain(plain).collect()
    }

    /// Framing of responses.
    pub(crate) fn frame_format(self) -> FrameFormat {
        if self == Self::Ollama { FrameFormat::JsonLines } else { FrameFormat::ServerSentEvents }
    }

    /// Encodes the tools of a request.
    pub(crate) fn encode_tools(self, tools: &[ToolSpec]) -> ToolList {
        match self {
            Self::OpenAi | Self::OpenRouter | Self::Ollama => tools.iter().map(openai_chat::encode_tool).collect(),
            Self::OpenAiResponses => tools.iter().map(openai_responses::encode_tool).collect(),
            Self::Anthropic => tools.iter().map(anthropic::encode_tool).collect(),
            Self::Gemini => gemini::encode_tools(tools),
        }
    }

    /// Body of a request to the provider of this name. The request must be [sanitized](sanitize_request).
    pub(crate) fn body(self, provider: &str, request: &ModelRequest) -> RequestBody {
        self.body_with_tools(provider, request, self.encode_tools(&request.tools))
    }

    /// Body of a request with tools that are [encoded](Self::encode_tools) already.
    pub(crate) fn body_with_tools(self, provider: &str, request: &ModelRequest, tools: ToolList) -> RequestBody {
        let target = &ModelOrigin::new(provider, request.model.name());
        match self {
            Self::OpenAi => openai_chat::body(openai_chat::ChatDialect::OpenAi, target, request, tools),
            Self::OpenRouter => openai_chat::body(openai_chat::ChatDialect::OpenRouter, target, request, tools),
            Self::OpenAiResponses => openai_responses::body(target, request, tools),
            Self::Anthropic => anthropic::body(target, request, tools),
            Self::Gemini => gemini::body(target, request, tools),
            Self::Ollama => ollama::body(target, request, tools),
        }
    }

    /// Reader for one response of this model.
    pub(crate) fn reader(self, origin: ModelOrigin) -> Box<dyn ResponseReader> {
        match self {
            Self::OpenAi | Self::OpenRouter => Box::new(openai_chat::OpenAiChatReader::new(origin)),
            Self::OpenAiResponses => Box::new(openai_responses::OpenAiResponsesReader::new(origin)),
            Self::Anthropic => Box::new(anthropic::AnthropicReader::new(origin)),
            Self::Gemini => Box::new(gemini::GeminiReader::new(origin)),
            Self::Ollama => Box::new(ollama::OllamaReader::new(origin)),
        }
    }
}

/// Body of a request in the `OpenAI` chat format.
///
/// ```
/// use capstan_models::wire::openai_body;
/// use capstan_protocol::{ChatMessage, ModelOptions, ModelRequest};
/// use serde_json::json;
///
/// let body = openai_body(&ModelRequest {
///     model: "openai:gpt-5".parse().unwrap(),
///     system: "Be brief.".to_owned(),
///     messages: vec![ChatMessage::user("hi")],
///     tools: [].into(),
///     options: ModelOptions::default(),
/// });
/// assert_eq!(body.rest["model"], "gpt-5");
/// assert_eq!(
///     body.messages,
///     [json!({"role": "system", "content": "Be brief."}), json!({"role": "user", "content": "hi"})]
/// );
/// ```
pub fn openai_body(request: &ModelRequest) -> RequestBody {
    let (wire, provider) = (WireProtocol::OpenAi, WireProtocol::OpenAi.name());
    wire.body(provider, &sanitize_request(wire, provider, request))
}

/// Names of the sampling options in a wire protocol.
struct SamplingKeys {
    temperature: &'static str,
    top_p: &'static str,
    /// `None`: the protocol has no stop sequences.
    stop: Option<&'static str>,
}

impl SamplingKeys {
    const SNAKE_CASE: Self = Self { temperature: "temperature", top_p: "top_p", stop: Some("stop") };
}

/// Adds the sampling options of a call to an object of its body.
fn insert_sampling(object: &mut JsonObject, options: &ModelOptions, keys: &SamplingKeys) {
    let mut insert = |key: &str, value: Value| object.insert(key.to_owned(), value);
    if let Some(temperature) = options.temperature {
        insert(keys.temperature, json!(temperature));
    }
    if let Some(top_p) = options.top_p {
        insert(keys.top_p, json!(top_p));
    }
    if let Some(stop) = keys.stop.filter(|_| !options.stop.is_empty()) {
        insert(stop, json!(options.stop));
    }
}

/// Adds keys of a call to a body. Keys that the wire protocol sets keep their values; objects are merged recursively.
pub(crate) fn add_body_keys(body: &mut JsonObject, additions: &JsonObject) {
    for (key, value) in additions {
        match (body.get_mut(key), value) {
            (Some(Value::Object(present)), Value::Object(more)) => add_body_keys(present, more),
            (Some(_), _) => {}
            (None, value) => {
                body.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Merges configured keys into a body; objects are merged recursively, other values replaced.
pub(crate) fn merge_body(body: &mut JsonObject, overrides: &JsonObject) {
    for (key, value) in overrides {
        match (body.get_mut(key), value) {
            (Some(Value::Object(present)), Value::Object(more)) => merge_body(present, more),
            _ => {
                body.insert(key.clone(), value.clone());
            }
        }
    }
}
