//! A call of a model as data: what is sent, and what came back.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ChatMessage, IdError, JsonObject, ToolCall, ToolSpec, Usage};

/// A model, as `provider:name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct ModelId {
    provider: String,
    name: String,
}

impl ModelId {
    /// The provider, such as `openai`.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The model's name at the provider; empty where a provider has only one.
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

/// Everything that is sent to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRequest {
    /// Which model.
    pub model: ModelId,
    /// The system prompt; empty for none.
    #[serde(default)]
    pub system: String,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// The tools it may call.
    #[serde(default)]
    pub tools: Arc<[ToolSpec]>,
    /// How it should answer.
    #[serde(default)]
    pub options: ModelOptions,
}

/// How a model should answer; what is not set is left to the provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelOptions {
    /// The most tokens it may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// How much it should think before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
}

/// How much a model should think before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    /// Not at all, where it can be told so.
    None,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

impl Reasoning {
    /// Every one of them.
    pub const LEVELS: [Self; 4] = [Self::None, Self::Low, Self::Medium, Self::High];

    /// The word as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// What a model call came to, collected from its stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelOutput {
    /// What it said.
    pub text: String,
    /// The tools it wants called.
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// What it used, as far as reported.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Opaque provider data that must come back with this message.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub provider_meta: JsonObject,
}

#[cfg(test)]
mod tests {
    use super::ModelId;

    #[test]
    fn a_model_is_provider_and_name() {
        let id: ModelId = "openai:gpt-5:beta".parse().unwrap();
        assert_eq!((id.provider(), id.name()), ("openai", "gpt-5:beta"));
        assert_eq!("demo:".parse::<ModelId>().unwrap().name(), "");
        assert!("gpt-5".parse::<ModelId>().is_err());
        assert!(":x".parse::<ModelId>().is_err());
    }
}
