//! What a runner says of itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use serde_json::Value;

use crate::{PermissionSet, RunnerId};

/// A runner as the registry knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Descriptor {
    /// Its id, such as `builtin:agent`.
    pub id: RunnerId,
    /// Who runs it.
    pub source: RunnerSource,
    /// A name to show.
    pub label: LocalizedText,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<LocalizedText>,
    /// What it can do.
    #[serde(default)]
    pub capabilities: RunnerCapabilities,
    /// The most it needs.
    pub permissions: PermissionSet,
    /// What it cannot do without: a binding that grants less is refused when it is saved. `"all"` for names means any one
    /// of them.
    #[serde(default)]
    pub requires: PermissionSet,
    /// What its configuration in a binding must look like, as a JSON Schema; absent: it takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
    /// The plugin it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginRef>,
}

impl Descriptor {
    /// A runner of this id and name that can do nothing and needs nothing.
    pub fn new(id: impl Into<RunnerId>, label: impl Into<LocalizedText>) -> Self {
        Self {
            id: id.into(),
            source: RunnerSource::Plugin,
            label: label.into(),
            description: None,
            capabilities: RunnerCapabilities::default(),
            permissions: PermissionSet::none(),
            requires: PermissionSet::none(),
            config_schema: None,
            plugin: None,
        }
    }
}

/// A text for people: one for all of them, or one for each language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a label is a text, or an object with a text for each language")]
pub enum LocalizedText {
    /// The same for everybody.
    Plain(String),
    /// By language, such as `en` or `zh_Hans`.
    ByLanguage(BTreeMap<String, String>),
}

impl LocalizedText {
    /// The text for a language: its own, else the English one, else any.
    pub fn text(&self, language: &str) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::ByLanguage(texts) => {
                let english = || texts.iter().find(|(name, _)| name.starts_with("en")).map(|(_, text)| text);
                let text = texts.get(language).or_else(english).or_else(|| texts.values().next());
                text.map(String::as_str).unwrap_or_default()
            }
        }
    }
}

impl From<&str> for LocalizedText {
    fn from(text: &str) -> Self {
        Self::Plain(text.to_owned())
    }
}

impl From<String> for LocalizedText {
    fn from(text: String) -> Self {
        Self::Plain(text)
    }
}

/// A plugin, as a runner refers to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PluginRef {
    /// Who made it.
    pub author: String,
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Whether a runner keeps state in the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostStateRequirement {
    /// It never does.
    #[default]
    None,
    /// It does where it may.
    Optional,
    /// It cannot do without.
    Required,
}

/// Where a runner's code lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunnerSource {
    /// In a plugin.
    Plugin,
    /// In the host itself.
    HostAdapter,
}

/// What a runner can do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "a wire format of independent declarations")]
pub struct RunnerCapabilities {
    /// It emits `message.delta`.
    #[serde(default)]
    pub streaming: bool,
    /// It calls tools.
    #[serde(default)]
    pub tool_calling: bool,
    /// It asks knowledge bases.
    #[serde(default)]
    pub knowledge_retrieval: bool,
    /// It serves events that are not messages.
    #[serde(default)]
    pub event_context: bool,
    /// It asks for actions on the platform.
    #[serde(default)]
    pub platform_api: bool,
    /// It ends soon when it is cancelled.
    #[serde(default)]
    pub interrupt: bool,
    /// It remembers something of a conversation over its runs.
    #[serde(default)]
    pub stateful_session: bool,
    /// Whether it keeps state in the host.
    #[serde(default)]
    pub host_state: HostStateRequirement,
    /// It asks people while it works.
    #[serde(default)]
    pub interactions: bool,
    /// It reads images and other parts.
    #[serde(default)]
    pub multimodal_input: bool,
    /// It keeps its own context: the host gives it the event and handles, no history.
    #[serde(default)]
    pub self_managed_context: bool,
    /// It asks for messages that came while it works.
    #[serde(default)]
    pub steering: bool,
    /// Whatever it does, it does through the host: a run of it that a crash cut off can be taken up again.
    #[serde(default)]
    pub effects_through_host: bool,
}
