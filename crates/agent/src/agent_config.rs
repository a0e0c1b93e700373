//! Configuration of the agent in a binding.

use capstan_protocol::{JsonObject, ModelId, ModelOptions, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Settings of the agent in the `runner_config` of a binding. Everything is optional.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentConfig {
    /// Model of the binding, as `provider:name`. The model that a person chose for a conversation comes first.
    #[schemars(with = "Option<String>", extend("x-capstan-resource" = "model", "pattern" = "^[^:]+:"))]
    pub(crate) model: Option<ModelId>,
    /// Models to try if the model fails, in place of those of the host.
    #[schemars(with = "Option<Vec<ModelName>>")]
    pub(crate) fallbacks: Option<Vec<ModelId>>,
    /// System prompt of the binding: a text that is added to the prompt of the host, or one that replaces it.
    pub(crate) prompt: Option<PromptConfig>,
    /// Tools that the model is offered, by name, out of those that the policy grants; absent: all of them.
    #[schemars(with = "Option<Vec<ToolNameText>>")]
    pub(crate) tools: Option<Vec<String>>,
    /// Maximum number of steps of a run, including its subagents, up to that of the host.
    #[schemars(range(min = 1), extend("x-capstan-limit" = "steps"))]
    pub(crate) max_steps: Option<u32>,
    /// Options of the model calls.
    pub(crate) options: ModelOptions,
}

/// System prompt of a binding.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum PromptConfig {
    /// Text after the system prompt of the host.
    Text(String),
    /// Text with its place.
    Placed(PlacedPrompt),
}

/// Text with its place in the system prompt.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlacedPrompt {
    /// After the system prompt of the host.
    Append(String),
    /// In place of the system prompt of the host.
    Replace(String),
}

/// Name of a model in the schema.
#[derive(JsonSchema)]
#[schemars(transparent, extend("x-capstan-resource" = "model", "pattern" = "^[^:]+:"))]
struct ModelName(#[expect(dead_code, reason = "the type of the schema")] String);

/// Name of a tool in the schema.
#[derive(JsonSchema)]
#[schemars(transparent, extend("x-capstan-resource" = "tool"))]
struct ToolNameText(#[expect(dead_code, reason = "the type of the schema")] String);

impl AgentConfig {
    /// JSON Schema of the configuration. `default_model` is the model that the agent uses unless a binding names one.
    pub(crate) fn schema(default_model: Option<&ModelId>) -> Value {
        let mut schema = json!(schemars::schema_for!(Self));
        if let Some(model) = default_model {
            schema["properties"]["model"]["default"] = json!(model);
        }
        // Absent values of the other properties are decided by the host when the run begins.
        for property in ["fallbacks", "prompt", "tools", "max_steps", "options"] {
            if let Some(property) = schema["properties"][property].as_object_mut() {
                property.remove("default");
            }
        }
        schema
    }

    /// Parses the configuration of a run, or returns the problem. The host validates the configuration of a binding; a
    /// child run has the configuration of its parent.
    pub(crate) fn parse(config: &JsonObject) -> Result<Self, String> {
        serde_json::from_value(Value::Object(config.clone()))
            .map_err(|error| format!("runner_config does not fit: {error}"))
    }

    /// System prompt of a run: that of the host, with the text of the binding.
    pub(crate) fn system_prompt(&self, host: String) -> String {
        let addition = match &self.prompt {
            None => return host,
            Some(PromptConfig::Placed(PlacedPrompt::Replace(text))) => return text.clone(),
            Some(PromptConfig::Text(text) | PromptConfig::Placed(PlacedPrompt::Append(text))) => text,
        };
        if host.is_empty() { addition.clone() } else { format!("{host}\n\n{addition}") }
    }

    /// Returns true if the prompt of the host is part of the system prompt.
    pub(crate) fn uses_host_prompt(&self) -> bool {
        !matches!(self.prompt, Some(PromptConfig::Placed(PlacedPrompt::Replace(_))))
    }

    /// Returns true if the model may call this tool, by its own name or the one that models get.
    pub(crate) fn offers_tool(&self, name: &str) -> bool {
        let is_tool =
            |offered: &String| offered == name || capstan_protocol::ToolName::new(offered).model_name() == name;
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(is_tool))
    }

    /// Tools of the grant that the model is offered.
    pub(crate) fn offered_tools(&self, granted: std::sync::Arc<[ToolSpec]>) -> std::sync::Arc<[ToolSpec]> {
        match self.tools {
            None => granted,
            Some(_) => granted.iter().filter(|tool| self.offers_tool(tool.name.as_str())).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::AgentConfig;

    fn config(value: &Value) -> AgentConfig {
        AgentConfig::parse(value.as_object().unwrap()).unwrap()
    }

    #[test]
    fn g02_a_prompt_is_added_to_that_of_the_host_or_replaces_it() {
        let prompt = |value: Value| config(&value).system_prompt("Host.".to_owned());
        assert_eq!(prompt(json!({})), "Host.");
        assert_eq!(prompt(json!({"prompt": "Kind."})), "Host.\n\nKind.");
        assert_eq!(prompt(json!({"prompt": {"append": "Kind."}})), "Host.\n\nKind.");
        assert_eq!(prompt(json!({"prompt": {"replace": "Kind."}})), "Kind.");
        assert_eq!(config(&json!({"prompt": "Kind."})).system_prompt(String::new()), "Kind.");
    }

    #[test]
    fn g02_the_schema_accepts_every_setting_and_nothing_else() {
        let schema = AgentConfig::schema(Some(&"demo:".parse().unwrap()));
        assert_eq!(schema["properties"]["model"]["default"], "demo:");
        assert_eq!(schema["additionalProperties"], false);
        let full = json!({
            "model": "openai:x", "fallbacks": ["demo:"], "prompt": {"replace": "Kind."}, "tools": ["tape.info"],
            "max_steps": 3, "options": {"temperature": 0.2, "max_tokens": 100, "body": {"seed": 1}},
        });
        assert_eq!(config(&full).max_steps, Some(3));
        for (key, _) in full.as_object().unwrap() {
            assert!(schema["properties"].get(key).is_some(), "{key}");
        }
        assert!(AgentConfig::parse(json!({"temperature": 1}).as_object().unwrap()).is_err());
    }

    #[test]
    fn g02_tools_can_only_be_narrowed() {
        let narrowed = config(&json!({"tools": ["tape.info"]}));
        assert!(
            narrowed.offers_tool("tape.info") && narrowed.offers_tool("tape_info") && !narrowed.offers_tool("bash")
        );
        assert!(config(&json!({})).offers_tool("bash"));
    }
}
