//! What a runner says of itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Permissions, RunnerId};

/// A runner as the registry knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Descriptor {
    /// Its id, such as `builtin:agent`.
    pub id: RunnerId,
    /// Who runs it.
    pub source: RunnerSource,
    /// A name to show.
    pub label: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// The most it needs.
    pub permissions: Permissions,
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
pub struct Capabilities {
    /// It emits `message.delta`.
    #[serde(default)]
    pub streaming: bool,
    /// It calls tools.
    #[serde(default)]
    pub tool_calling: bool,
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
