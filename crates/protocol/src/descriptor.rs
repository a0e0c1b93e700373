//! Descriptors: the declaration of a runner's capabilities, permissions and configuration.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use serde_json::Value;

use crate::{AllowList, PermissionSet, RunnerId};

/// Registered description of a runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Descriptor {
    /// Id of the runner, such as `builtin:agent`.
    pub id: RunnerId,
    /// Location of the runner's code.
    pub source: RunnerSource,
    /// Display name.
    pub label: LocalizedText,
    /// Purpose of the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<LocalizedText>,
    /// Capabilities of the runner.
    #[serde(default)]
    pub capabilities: RunnerCapabilities,
    /// All permissions that the runner can make use of.
    pub permissions: PermissionSet,
    /// Permissions without which the runner does not work: a binding that grants less cannot be saved. `"all"` for
    /// names means at least one.
    #[serde(default)]
    pub requires: PermissionSet,
    /// JSON Schema of the runner's configuration in a binding; absent: the runner has no configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
    /// Maximum duration of a run of this runner, in seconds; absent: that of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Plugin that provides the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginRef>,
}

impl Descriptor {
    /// Describes a runner without capabilities and permissions.
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
            timeout_seconds: None,
            plugin: None,
        }
    }
}

impl Descriptor {
    /// Permissions that the runner asks for without declaring the capability that uses them. A run gets them, since the
    /// permissions decide; the declaration is incomplete.
    pub fn undeclared_capabilities(&self) -> Vec<&'static str> {
        let (permissions, capabilities) = (&self.permissions, &self.capabilities);
        let uses = [
            ("tool_calling", !permissions.tools.operations.is_empty(), capabilities.tool_calling),
            (
                "knowledge_retrieval",
                !permissions.knowledge_bases.operations.is_empty(),
                capabilities.knowledge_retrieval,
            ),
            ("platform_api", permissions.platform_api != AllowList::none(), capabilities.platform_api),
            ("steering", permissions.steering, capabilities.steering),
            ("host_state", !permissions.state.is_empty(), capabilities.host_state != HostStateRequirement::None),
        ];
        uses.into_iter().filter(|(_, is_asked, is_declared)| *is_asked && !is_declared).map(|(name, ..)| name).collect()
    }
}

/// Text for people, with optional translations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a label must be a string, or an object with a string for each language")]
pub enum LocalizedText {
    /// One text for all languages.
    Plain(String),
    /// Texts by language, such as `en` or `zh_Hans`.
    ByLanguage(BTreeMap<String, String>),
}

impl LocalizedText {
    /// Text in this language, with English and then any other language as fallback.
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

/// Reference from a runner to its plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PluginRef {
    /// Author of the plugin.
    pub author: String,
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Runner's use of state that the host stores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostStateRequirement {
    /// The runner stores no state in the host.
    #[default]
    None,
    /// The runner stores state if its grant allows it.
    Optional,
    /// The runner does not work without stored state.
    Required,
}

/// Location of a runner's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunnerSource {
    /// In a plugin.
    Plugin,
    /// In the host itself.
    HostAdapter,
}

/// Capabilities that a runner declares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "a wire format of independent declarations")]
pub struct RunnerCapabilities {
    /// Emits `message.delta`.
    #[serde(default)]
    pub streaming: bool,
    /// Calls tools.
    #[serde(default)]
    pub tool_calling: bool,
    /// Queries knowledge bases.
    #[serde(default)]
    pub knowledge_retrieval: bool,
    /// Serves events that are not messages.
    #[serde(default)]
    pub event_context: bool,
    /// Requests platform actions.
    #[serde(default)]
    pub platform_api: bool,
    /// Ends promptly after cancellation.
    #[serde(default)]
    pub interrupt: bool,
    /// Keeps information about a conversation across runs.
    #[serde(default)]
    pub stateful_session: bool,
    /// Use of state that the host stores.
    #[serde(default)]
    pub host_state: HostStateRequirement,
    /// Asks the user questions during a run.
    #[serde(default)]
    pub interactions: bool,
    /// Reads images and other content parts.
    #[serde(default)]
    pub multimodal_input: bool,
    /// Manages its own context: the host passes the event and handles, but no history.
    #[serde(default)]
    pub self_managed_context: bool,
    /// Fetches messages that arrive during a run.
    #[serde(default)]
    pub steering: bool,
    /// Has all its effects through the host, so that a run interrupted by a crash can be resumed.
    #[serde(default)]
    pub effects_through_host: bool,
}
