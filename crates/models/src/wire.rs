//! What each kind of provider receives and sends, as pure functions.
//!
//! A [`Wire`] says where requests go, what their bodies are, and how answers are read. [`Provider`](crate::Provider)
//! does the rest, in one way for all of them. What a provider gives that only it understands (signatures of thoughts,
//! encrypted reasoning) rides under the provider's name in the key `provider` of a message's or a call's `extra`, and
//! goes back to the model that made it and to no other.

mod anthropic;
mod chat;
mod effort;
mod figures;
mod fit;
mod gemini;
mod ollama;
mod opaque;
mod parts;
mod reader;
mod responses;
mod tools;

use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{Map, ModelRequest, ToolSpec};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::frames::Framing;
pub(crate) use anthropic::BETA;
pub(crate) use fit::fitting;
pub(crate) use opaque::Speaker;
pub(crate) use reader::{Progress, Reader};
pub(crate) use tools::WrittenTools;

/// A kind of provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wire {
    /// `OpenAI` chat, and every server that speaks it.
    OpenAi,
    /// `OpenAI` Responses.
    OpenAiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Google Gemini.
    Gemini,
    /// `OpenRouter`: `OpenAI` chat with its own way of reasoning.
    OpenRouter,
    /// Ollama's own protocol.
    Ollama,
}

impl Wire {
    /// Every one of them.
    pub const ALL: [Self; 6] =
        [Self::OpenAi, Self::OpenAiResponses, Self::Anthropic, Self::Gemini, Self::OpenRouter, Self::Ollama];

    /// The name, which is also that of the provider it is made for.
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

    /// The wire of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.name() == name)
    }

    /// Where its provider is when nobody says otherwise.
    pub fn default_base(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta",
            Self::OpenRouter => "https://openrouter.ai/api/v1",
            Self::Ollama => "http://127.0.0.1:11434",
        }
    }

    /// Scheme, host and port that requests go to with this base URL; nothing where it is none.
    pub fn origin(self, base: Option<&str>) -> Option<String> {
        Endpoint::parse(self.name(), self, base, "").ok().map(|endpoint| endpoint.origin())
    }

    /// Whether its provider, at its own address, answers nobody without a key.
    pub fn needs_key(self) -> bool {
        self != Self::Ollama
    }

    /// The variables in which people keep the key of its provider, the first that is set counts.
    pub fn key_variables(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi | Self::OpenAiResponses => &["OPENAI_API_KEY"],
            Self::Anthropic => &["ANTHROPIC_API_KEY"],
            Self::Gemini => &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
            Self::OpenRouter => &["OPENROUTER_API_KEY"],
            Self::Ollama => &["OLLAMA_API_KEY"],
        }
    }

    /// The variables in which people keep the address of its provider.
    pub fn base_variables(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi | Self::OpenAiResponses => &["OPENAI_BASE_URL"],
            Self::Anthropic => &["ANTHROPIC_BASE_URL"],
            Self::Gemini => &["GOOGLE_GEMINI_BASE_URL"],
            Self::OpenRouter => &["OPENROUTER_BASE_URL"],
            Self::Ollama => &["OLLAMA_HOST"],
        }
    }

    /// The headers that say who asks, and what of this model.
    pub(crate) fn headers(self, key: Option<&SecretString>, model: &str) -> Vec<(&'static str, SecretString)> {
        let key = key.map(|key| match self {
            Self::OpenAi | Self::OpenAiResponses | Self::OpenRouter | Self::Ollama => {
                ("authorization", SecretString::from(format!("Bearer {}", key.expose_secret())))
            }
            Self::Anthropic => ("x-api-key", key.clone()),
            Self::Gemini => ("x-goog-api-key", key.clone()),
        });
        let version = (self == Self::Anthropic).then_some(("anthropic-version", "2023-06-01"));
        let beta = (self == Self::Anthropic).then(|| anthropic::beta(model)).flatten();
        let plain = version.into_iter().chain(beta).map(|(name, value)| (name, SecretString::from(value)));
        key.into_iter().chain(plain).collect()
    }

    /// How answers are cut into frames.
    pub(crate) fn framing(self) -> Framing {
        if self == Self::Ollama { Framing::Lines } else { Framing::Events }
    }

    /// The tools of a request.
    pub(crate) fn tools(self, tools: &[ToolSpec]) -> ToolList {
        match self {
            Self::OpenAi | Self::OpenRouter | Self::Ollama => tools.iter().map(chat::tool).collect(),
            Self::OpenAiResponses => tools.iter().map(responses::tool).collect(),
            Self::Anthropic => tools.iter().map(anthropic::tool).collect(),
            Self::Gemini => gemini::tools(tools),
        }
    }

    /// The body of a request to the provider of this name. It must be [`fitting`].
    pub(crate) fn body(self, provider: &str, request: &ModelRequest) -> RequestBody {
        self.body_with(provider, request, self.tools(&request.tools))
    }

    /// The body of a request whose tools are [written](Self::tools) already.
    pub(crate) fn body_with(self, provider: &str, request: &ModelRequest, tools: ToolList) -> RequestBody {
        let to = &Speaker::new(provider, request.model.name());
        match self {
            Self::OpenAi => chat::body(chat::Flavour::Plain, to, request, tools),
            Self::OpenRouter => chat::body(chat::Flavour::OpenRouter, to, request, tools),
            Self::OpenAiResponses => responses::body(to, request, tools),
            Self::Anthropic => anthropic::body(to, request, tools),
            Self::Gemini => gemini::body(to, request, tools),
            Self::Ollama => ollama::body(to, request, tools),
        }
    }

    /// Reads one answer of this model.
    pub(crate) fn reader(self, speaker: Speaker) -> Box<dyn Reader> {
        match self {
            Self::OpenAi | Self::OpenRouter => Box::new(chat::Answer::new(speaker)),
            Self::OpenAiResponses => Box::new(responses::Answer::new(speaker)),
            Self::Anthropic => Box::new(anthropic::Answer::new(speaker)),
            Self::Gemini => Box::new(gemini::Answer::new(speaker)),
            Self::Ollama => Box::new(ollama::Answer::new(speaker)),
        }
    }
}

/// The body of a request in the form of `OpenAI` chat.
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
    let (wire, provider) = (Wire::OpenAi, Wire::OpenAi.name());
    wire.body(provider, &fitting(wire, provider, request))
}

/// Puts what the configuration wants sent over what a wire sends; objects are joined, anything else is replaced.
pub(crate) fn join(body: &mut Map, with: &Map) {
    for (key, value) in with {
        match (body.get_mut(key), value) {
            (Some(Value::Object(there)), Value::Object(more)) => join(there, more),
            _ => {
                body.insert(key.clone(), value.clone());
            }
        }
    }
}
