//! Model calls as data: request, options and output.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ChatMessage, IdError, JsonObject, ToolCall, ToolSpec, Usage};

/// Id of a model, written `provider:name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct ModelId {
    provider: String,
    name: String,
}

impl ModelId {
    /// Provider, such as `openai`.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Name of the model at the provider; empty for a provider with only one model.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for ModelId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some((provider, name)) if !provider.is_empty() => {
                Ok(Self { provider: provider.to_owned(), name: name.to_owned() })
            }
            _ => Err(IdError { what: "model", value: text.to_owned(), reason: "it is not of the form provider:name" }),
        }
    }
}

impl TryFrom<String> for ModelId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ModelId> for String {
    fn from(id: ModelId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.name)
    }
}

/// Request to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRequest {
    /// Model to call.
    pub model: ModelId,
    /// System prompt; empty for none.
    #[serde(default)]
    pub system: String,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// Tools that the model may call.
    #[serde(default)]
    pub tools: Arc<[ToolSpec]>,
    /// Options of the call.
    #[serde(default)]
    pub options: ModelOptions,
}

/// Keys of a request body that [`ModelOptions::body`] cannot add: they select another model or other content than the
/// host has checked and recorded.
pub const RESERVED_BODY_KEYS: [&str; 16] = [
    "background",
    "contents",
    "conversation",
    "functions",
    "input",
    "instructions",
    "messages",
    "model",
    "models",
    "previous_response_id",
    "prompt",
    "store",
    "stream",
    "system",
    "systemInstruction",
    "tools",
];

/// Maximum number of stop sequences of a call.
const MAX_STOP_SEQUENCES: usize = 16;

/// Options of a model call; the provider decides about absent ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelOptions {
    /// Maximum number of tokens in the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u32>,
    /// Reasoning effort before the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// Probability mass of the tokens to sample from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub top_p: Option<f64>,
    /// Texts that end the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_STOP_SEQUENCES), inner(length(min = 1)))]
    pub stop: Vec<String>,
    /// Maximum duration of the whole call, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_seconds: Option<u32>,
    /// Further keys of the request body. A key that the host sets itself keeps the host's value.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    #[schemars(extend("propertyNames" = {"not": {"enum": RESERVED_BODY_KEYS}}))]
    pub body: JsonObject,
}

impl ModelOptions {
    /// Options of a call under these options of the host: those of the call come first, except that `max_tokens` of the
    /// host is an upper limit.
    #[must_use]
    pub fn for_call(&self, call: &Self) -> Self {
        let mut body = self.body.clone();
        body.extend(call.body.clone());
        Self {
            max_tokens: self.max_tokens.into_iter().chain(call.max_tokens).min(),
            reasoning: call.reasoning.or(self.reasoning),
            temperature: call.temperature.or(self.temperature),
            top_p: call.top_p.or(self.top_p),
            stop: if call.stop.is_empty() { self.stop.clone() } else { call.stop.clone() },
            timeout_seconds: self.timeout_seconds.into_iter().chain(call.timeout_seconds).min(),
            body,
        }
    }

    /// Reason why a call cannot have these options, if there is one.
    pub fn error(&self) -> Option<String> {
        let out_of_range = |name: &str, value: Option<f64>, max: f64| {
            let is_outside = value.is_some_and(|value| !(0.0..=max).contains(&value));
            is_outside.then(|| format!("the option {name} must be a number from 0 to {max}"))
        };
        let is_reserved = |key: &&String| RESERVED_BODY_KEYS.contains(&key.as_str());
        let reserved = || Some(format!("the option body cannot set {}", self.body.keys().find(is_reserved)?));
        let zero =
            |name: &str, value: Option<u32>| (value == Some(0)).then(|| format!("the option {name} must not be 0"));
        let stop = || {
            let is_invalid = self.stop.len() > MAX_STOP_SEQUENCES || self.stop.iter().any(String::is_empty);
            is_invalid.then(|| format!("the option stop has at most {MAX_STOP_SEQUENCES} texts, none of them empty"))
        };
        out_of_range("temperature", self.temperature, 2.0)
            .or_else(|| out_of_range("top_p", self.top_p, 1.0))
            .or_else(|| zero("max_tokens", self.max_tokens))
            .or_else(|| zero("timeout_seconds", self.timeout_seconds))
            .or_else(stop)
            .or_else(reserved)
    }
}

/// Reasoning effort of a model before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    /// No reasoning, if the provider can turn it off.
    None,
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
}

impl Reasoning {
    /// Every level.
    pub const LEVELS: [Self; 4] = [Self::None, Self::Low, Self::Medium, Self::High];

    /// Name of the level, as in JSON and configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Complete output of a model call, collected from its stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelOutput {
    /// Text of the answer.
    pub text: String,
    /// Tool calls that the model requests.
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// Token usage, as far as the provider reported it.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Opaque provider data that later requests must include with this message.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub provider_meta: JsonObject,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ModelId, ModelOptions};

    fn options(value: serde_json::Value) -> ModelOptions {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a08_options_of_a_call_come_first_within_the_limit_of_the_host() {
        let host =
            options(json!({"max_tokens": 100, "temperature": 1.0, "reasoning": "low", "body": {"seed": 1, "n": 1}}));
        let call = options(json!({"max_tokens": 500, "temperature": 0.2, "stop": ["END"], "body": {"seed": 2}}));
        let merged = options(json!({
            "max_tokens": 100, "temperature": 0.2, "reasoning": "low", "stop": ["END"], "body": {"seed": 2, "n": 1},
        }));
        assert_eq!(host.for_call(&call), merged);
        assert_eq!(ModelOptions::default().for_call(&call), call);
        assert_eq!(host.for_call(&ModelOptions::default()), host);
    }

    #[test]
    fn a08_options_outside_of_their_range_are_refused() {
        let invalid = [
            json!({"temperature": 2.1}),
            json!({"temperature": -0.1}),
            json!({"top_p": 1.5}),
            json!({"max_tokens": 0}),
            json!({"timeout_seconds": 0}),
            json!({"stop": [""]}),
            json!({"stop": vec!["x"; 17]}),
            json!({"body": {"model": "another"}}),
            json!({"body": {"models": ["another"]}}),
        ];
        for value in invalid {
            assert!(options(value.clone()).error().is_some(), "{value}");
        }
        assert_eq!(options(json!({"temperature": 2.0, "top_p": 0.0, "body": {"seed": 7}})).error(), None);
        assert!(serde_json::from_value::<ModelOptions>(json!({"temprature": 1})).is_err());
    }

    #[test]
    fn model_id_is_provider_and_name() {
        let id: ModelId = "openai:gpt-5:beta".parse().unwrap();
        assert_eq!((id.provider(), id.name()), ("openai", "gpt-5:beta"));
        assert_eq!("demo:".parse::<ModelId>().unwrap().name(), "");
        assert!("gpt-5".parse::<ModelId>().is_err());
        assert!(":x".parse::<ModelId>().is_err());
    }
}
