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

/// Options of a model call; the provider decides about absent ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelOptions {
    /// Maximum number of tokens in the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Reasoning effort before the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
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
    use super::ModelId;

    #[test]
    fn model_id_is_provider_and_name() {
        let id: ModelId = "openai:gpt-5:beta".parse().unwrap();
        assert_eq!((id.provider(), id.name()), ("openai", "gpt-5:beta"));
        assert_eq!("demo:".parse::<ModelId>().unwrap().name(), "");
        assert!("gpt-5".parse::<ModelId>().is_err());
        assert!(":x".parse::<ModelId>().is_err());
    }
}
