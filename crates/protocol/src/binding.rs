//! Which runner serves which events, and with what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Access, AdmissionMode, BindingId, ChannelName, Map, RunnerId, TapeAccess};

/// The standing order that matches events to a runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Binding {
    /// Its name.
    pub binding_id: BindingId,
    /// Where it applies.
    #[serde(default)]
    pub scope: BindingScope,
    /// The event types it takes; empty takes all.
    #[serde(default)]
    pub event_types: Vec<String>,
    /// The runner that serves them.
    pub runner_id: RunnerId,
    /// What the runner is configured with.
    #[serde(default)]
    pub runner_config: Map,
    /// What the runner may use.
    #[serde(default)]
    pub resource_policy: ResourcePolicy,
    /// What the runner may keep.
    #[serde(default)]
    pub state_policy: StatePolicy,
    /// How its answers are delivered.
    #[serde(default)]
    pub delivery_policy: DeliveryPolicy,
    /// Whether it is in force.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

/// Where a binding applies; a field that is absent applies everywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BindingScope {
    /// The channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelName>,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
}

/// What a binding lets its runner use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourcePolicy {
    /// Models, by `provider:name`.
    pub models: Access,
    /// Tools, by name.
    pub tools: Access,
    /// The session's tape.
    pub tape: TapeAccess,
    /// Whether the artifacts of the session may be used.
    #[serde(default = "uncut")]
    pub artifacts: bool,
    /// Whether child runs may be begun.
    #[serde(default = "uncut")]
    pub children: bool,
    /// Whether a comma command with an unknown name runs as a shell command; absent: on the cli only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_commands: Option<bool>,
}

impl Default for ResourcePolicy {
    /// No cut: the runner may use whatever its descriptor asks for.
    fn default() -> Self {
        Self {
            models: Access::All,
            tools: Access::All,
            tape: TapeAccess::Write,
            artifacts: uncut(),
            children: uncut(),
            shell_commands: None,
        }
    }
}

/// What a policy that does not say allows.
fn uncut() -> bool {
    true
}

/// What a binding lets its runner keep in the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatePolicy {
    /// Whether it may keep state at all.
    #[serde(default)]
    pub enabled: bool,
}

/// How answers are delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryPolicy {
    /// Whether stream events are kept from the channel.
    #[serde(default)]
    pub no_stream: bool,
    /// What a message does that comes while a turn is going on; absent: what the channel says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionMode>,
}
