//! Which runner serves which events, and with what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    AdmissionMode, AllowList, ApprovalRule, ArtifactOperation, BindingId, ChannelName, ChatId, EventOperation,
    HistoryOperation, JsonObject, KnowledgeOperation, ModelOperation, OperationSet, PermissionSet, ReadScope,
    ResourceAccess, RunnerId, StateLimits, StateScope, StorageArea, TapeAccess, ToolOperation, WorkspaceId,
};

/// The standing order that matches events to a runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// Its name.
    pub binding_id: BindingId,
    /// Where it applies.
    #[serde(default)]
    pub scope: BindingScope,
    /// The event types it takes: names, or the beginning of names as in `group.*`; empty takes all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    /// What else must be true of an event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<EventFilter>,
    /// The runner that serves them.
    pub runner_id: RunnerId,
    /// What the runner is configured with.
    #[serde(default)]
    pub runner_config: JsonObject,
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
#[serde(deny_unknown_fields)]
pub struct BindingScope {
    /// The workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// The bot account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot_id: Option<String>,
    /// The channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelName>,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// The thread of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Whoever did what the event tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
}

/// Something that must be true of an event. All that is said of the field must hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventFilter {
    /// The field of the event, with dots between the parts: `metadata.lang`, `input.text`.
    pub field: String,
    /// It is one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<Value>,
    /// It is a text in which this stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// It is there, or it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
}

/// What a binding lets its runner use. What is absent is not cut: the runner may use what its descriptor asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResourcePolicy {
    /// Models, by `provider:name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<ResourceAccess<ModelOperation>>,
    /// Tools, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<ResourceAccess<ToolOperation>>,
    /// Knowledge bases, by id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knowledge_bases: Option<ResourceAccess<KnowledgeOperation>>,
    /// The history of conversations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<OperationSet<HistoryOperation>>,
    /// The log of events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<OperationSet<EventOperation>>,
    /// How far history and events reach. More than the conversation needs the binding's word.
    pub reach: ReadScope,
    /// The artifacts of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<OperationSet<ArtifactOperation>>,
    /// Contents kept by the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<OperationSet<StorageArea>>,
    /// Actions on the platform, by name. They need the binding's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_api: Option<AllowList>,
    /// The session's tape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tape: Option<TapeAccess>,
    /// Child runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<bool>,
    /// Messages that come while the run goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steering: Option<bool>,
    /// Whether a comma command with an unknown name runs as a shell command; absent: on the cli only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell_commands: Option<bool>,
    /// What is said of single tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalRule>,
}

/// What a binding lets its runner keep in the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StatePolicy {
    /// Whether it may keep state at all.
    pub enabled: bool,
    /// For whom; absent: for all it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<OperationSet<StateScope>>,
    /// How much in each scope.
    pub limits: StateLimits,
}

/// How answers are delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeliveryPolicy {
    /// Whether stream events are kept from the channel.
    pub no_stream: bool,
    /// What a message does that comes while a turn is going on; absent: what the channel says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionMode>,
    /// The channel to answer on, where the event does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_channel: Option<ChannelName>,
    /// The chat to answer in, there or on the event's own channel; absent: the one that the event says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<ChatId>,
    /// Whether nothing is sent at all: what is said stands on the tape alone.
    pub silent: bool,
}

impl Binding {
    /// The most a run under it can use, whoever serves it.
    pub fn max_permissions(&self) -> PermissionSet {
        let policy = &self.resource_policy;
        let everything = PermissionSet::all();
        PermissionSet {
            models: policy.models.clone().unwrap_or(everything.models),
            tools: policy.tools.clone().unwrap_or(everything.tools),
            knowledge_bases: policy.knowledge_bases.clone().unwrap_or(everything.knowledge_bases),
            history: policy.history.unwrap_or(everything.history),
            events: policy.events.unwrap_or(everything.events),
            reach: policy.reach,
            artifacts: policy.artifacts.unwrap_or(everything.artifacts),
            state: match self.state_policy {
                StatePolicy { enabled: false, .. } => OperationSet::none(),
                StatePolicy { scopes, .. } => scopes.unwrap_or_else(OperationSet::all),
            },
            storage: policy.storage.unwrap_or(everything.storage),
            platform_api: policy.platform_api.clone().unwrap_or_else(AllowList::none),
            tape: policy.tape.unwrap_or(everything.tape),
            prompt: everything.prompt,
            children: policy.children.unwrap_or(everything.children),
            steering: policy.steering.unwrap_or(everything.steering),
        }
    }
}
