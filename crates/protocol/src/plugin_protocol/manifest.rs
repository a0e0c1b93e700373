//! Manifest of a plugin process.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{AdmissionMode, LocalizedText, PermissionSet, RunnerCapabilities};

/// Manifest of a plugin: everything that it contributes, read without starting it.
///
/// The schema describes `plugin.toml` after files that it names have been read.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PluginManifest {
    /// Author and name of the plugin: `AUTHOR/NAME`.
    pub id: String,
    /// Version of the plugin.
    pub version: String,
    /// Version of the protocol.
    pub protocol: u64,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Purpose of the plugin, in one sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The host does not start without the plugin.
    #[serde(default)]
    pub required: bool,
    /// Permissions of its hooks, such as `send:ops`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<String>,
    /// JSON Schema of its settings; absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
    /// Network hosts and paths that it asks for.
    #[serde(default)]
    pub access: PluginAccessRequest,
    /// Runners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runners: Vec<PluginRunnerManifest>,
    /// Hooks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<PluginHookManifest>,
    /// Tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<PluginToolManifest>,
    /// Channels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<PluginChannelManifest>,
    /// Knowledge sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knowledge: Vec<PluginKnowledgeManifest>,
    /// Model providers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<PluginModelManifest>,
}

impl PluginManifest {
    /// Author of the plugin.
    pub fn author(&self) -> &str {
        self.id.split_once('/').map_or(self.id.as_str(), |(author, _)| author)
    }

    /// Name of the plugin within the host.
    pub fn name(&self) -> &str {
        self.id.split_once('/').map_or(self.id.as_str(), |(_, name)| name)
    }
}

/// Network hosts and paths that a plugin asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PluginAccessRequest {
    /// Hosts: `NAME`, `NAME:PORT` or `*.DOMAIN`.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Absolute paths to read.
    #[serde(default)]
    pub read: Vec<String>,
    /// Absolute paths to write.
    #[serde(default)]
    pub write: Vec<String>,
}

/// Runner of a manifest. Its id is derived from that of the plugin.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PluginRunnerManifest {
    /// Name of the runner.
    pub name: String,
    /// Display name.
    pub label: LocalizedText,
    /// Purpose of the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<LocalizedText>,
    /// Capabilities of the runner.
    #[serde(default)]
    pub capabilities: RunnerCapabilities,
    /// Permissions that it can make use of.
    #[serde(default)]
    pub permissions: PermissionSet,
    /// Permissions without which it does not work.
    #[serde(default)]
    pub requires: PermissionSet,
    /// JSON Schema of its configuration in a binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
    /// Maximum duration of a run, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
}

/// Hook of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PluginHookManifest {
    /// Name of the hook.
    pub name: String,
    /// Arguments that it wants; the others are not sent.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// A failure stops the intercepted call.
    #[serde(default)]
    pub fail_closed: bool,
    /// Source of the answer of a `system_prompt`.
    #[serde(default)]
    pub mode: PluginPromptMode,
    /// Answer of a static `system_prompt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Source of the answer of a `system_prompt` hook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PluginPromptMode {
    /// The text of the manifest.
    Static,
    /// The plugin, at the start of each run.
    #[default]
    Dynamic,
}

/// Effect of a tool on other calls of the same step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PluginToolEffect {
    /// Neither reads nor changes shared state.
    None,
    /// Reads shared state.
    Reads,
    /// Changes the resource that an argument names.
    Writes,
    /// May change anything.
    #[default]
    Unrestricted,
}

/// Tool of a manifest.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "a file format of independent declarations")]
pub struct PluginToolManifest {
    /// Name of the tool.
    pub name: String,
    /// Purpose of the tool, for models.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// Effect of a call.
    #[serde(default)]
    pub effect: PluginToolEffect,
    /// Argument that names the resource that a call changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Maximum number of calls at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_calls: Option<u64>,
    /// Runs programs or changes files on the machine of the host.
    #[serde(default)]
    pub needs_trusted_origin: bool,
    /// Queries knowledge bases.
    #[serde(default)]
    pub needs_knowledge: bool,
    /// Exists for people only.
    #[serde(default)]
    pub command_only: bool,
    /// Limits the duration of a call itself.
    #[serde(default)]
    pub has_own_deadline: bool,
}

/// Channel of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PluginChannelManifest {
    /// Name of the channel.
    pub name: String,
    /// Capabilities of the channel.
    #[serde(default)]
    pub capabilities: PluginChannelCapabilities,
    /// Default intake of its events.
    #[serde(default)]
    pub intake: PluginIntake,
}

/// Capabilities of a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PluginChannelCapabilities {
    /// Sends images and files, as parts of the content.
    #[serde(default)]
    pub media: bool,
}

/// Intake of the events of a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PluginIntake {
    /// Treatment of a message that arrives during a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionMode>,
    /// Debouncing of messages before a turn begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounce: Option<PluginDebounce>,
}

/// Debouncing of messages, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PluginDebounce {
    /// Time without a further message before the turn begins.
    pub quiet_ms: u64,
    /// Maximum delay of the first message.
    pub max_wait_ms: u64,
    /// Time after a message to the bot during which unaddressed messages count as part of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_window_ms: Option<u64>,
}

/// Knowledge source of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PluginKnowledgeManifest {
    /// Id of the knowledge base.
    pub id: String,
    /// Subject of the knowledge base.
    pub description: String,
}

/// Model provider of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PluginModelManifest {
    /// Name of the provider.
    pub name: String,
}
