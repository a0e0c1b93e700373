//! Bindings: the assignment of events to runners, with configuration and policies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    AdmissionMode, AllowList, ApprovalRule, ArtifactOperation, BindingId, ChannelName, ChatId, EventOperation,
    HistoryOperation, JsonObject, KnowledgeOperation, ModelOperation, OperationSet, PermissionSet, ReadScope,
    ResourceAccess, RunnerId, StateLimits, StateScope, StorageArea, TapeAccess, ToolOperation, WorkspaceId,
};

/// Rule that assigns matching events to a runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// Id of the binding.
    pub binding_id: BindingId,
    /// Workspace, bot, channel, conversation, thread and actor that the binding is limited to.
    #[serde(default)]
    pub scope: BindingScope,
    /// Event types that match: names, or prefixes such as `group.*`; empty matches all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    /// Further conditions on an event; all must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<EventFilter>,
    /// Runner that serves the events.
    pub runner_id: RunnerId,
    /// Configuration of the runner.
    #[serde(default)]
    pub runner_config: JsonObject,
    /// Resources that the runner may use.
    #[serde(default)]
    pub resource_policy: ResourcePolicy,
    /// State that the runner may store.
    #[serde(default)]
    pub state_policy: StatePolicy,
    /// Delivery of the replies.
    #[serde(default)]
    pub delivery_policy: DeliveryPolicy,
    /// Maximum duration of a run under this binding, in seconds; absent: that of the runner and of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// False to disable the binding.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

/// Scope of a binding; an absent field matches every value.
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
    /// The actor of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
}

/// Condition on one field of an event. All given tests must hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventFilter {
    /// Path of the field, separated by dots: `metadata.lang`, `input.text`.
    pub field: String,
    /// The value is one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<Value>,
    /// The value is a string that contains this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// The field is present (`true`) or absent (`false`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
}

/// Resources that a binding allows its runner. An absent field allows everything that the runner's descriptor requests,
/// unless the field says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResourcePolicy {
    /// Models, by `provider:name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<ResourceAccess<ModelOperation>>,
    /// Tools, by name. Absent: all for a trusted origin; for a remote one, all but those that need a trusted origin, and
    /// comma commands of read-only tools only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<ResourceAccess<ToolOperation>>,
    /// Knowledge bases, by id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knowledge_bases: Option<ResourceAccess<KnowledgeOperation>>,
    /// Conversation history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<OperationSet<HistoryOperation>>,
    /// Event log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<OperationSet<EventOperation>>,
    /// Range of history and events. Anything beyond the conversation must be allowed here.
    pub reach: ReadScope,
    /// Artifacts of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<OperationSet<ArtifactOperation>>,
    /// Content stored by the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<OperationSet<StorageArea>>,
    /// Platform actions, by name. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_api: Option<AllowList>,
    /// Tape of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tape: Option<TapeAccess>,
    /// Prompts of the host: the system and continuation prompts, and `adapter.prompt` of the run context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<bool>,
    /// Child runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<bool>,
    /// Messages that arrive during the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steering: Option<bool>,
    /// Run a comma command with an unknown name as a shell command; absent: for trusted origins only.
    /// `true` also gives remote origins all tools that `tools` does not exclude.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell_commands: Option<bool>,
    /// Approval rules for tool calls; the first matching rule applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalRule>,
}

/// State that a binding allows its runner to store in the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StatePolicy {
    /// Allow the runner to store state.
    pub enabled: bool,
    /// Allowed scopes; absent: all that the runner requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<OperationSet<StateScope>>,
    /// Limits for each scope.
    pub limits: StateLimits,
}

/// Delivery of replies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeliveryPolicy {
    /// Do not send stream events to the channel.
    pub no_stream: bool,
    /// Handling of messages that arrive during a turn; absent: the channel's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionMode>,
    /// Channel for replies if the event names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_channel: Option<ChannelName>,
    /// Chat for replies, on `output_channel` or the event's own channel; absent: the chat that the event names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<ChatId>,
    /// Send nothing: replies are recorded on the tape only.
    pub silent: bool,
}

impl Binding {
    /// Upper limit of a run's permissions under this binding, whichever runner serves it.
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
            prompt: policy.prompt.unwrap_or(everything.prompt),
            children: policy.children.unwrap_or(everything.children),
            steering: policy.steering.unwrap_or(everything.steering),
        }
    }
}
