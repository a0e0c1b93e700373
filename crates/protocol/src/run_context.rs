//! What a runner is given when a run begins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ActorRef, BindingId, Content, DeliveryTarget, Event, EventInput, Grant, JsonObject, RunId, SessionId, SubjectRef,
    TapeName, Timestamp,
};

/// The run's context. Event first: there is no message history in it, only handles to ask for one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunContext {
    /// This run.
    pub run_id: RunId,
    /// Why it runs.
    pub trigger: RunTrigger,
    /// What happened.
    pub event: Event,
    /// Where it happened.
    pub conversation: ConversationContext,
    /// Who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<ActorRef>,
    /// What it was done to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectRef>,
    /// The event's own input.
    pub input: EventInput,
    /// Where answers go.
    pub delivery: DeliveryTarget,
    /// What the run may use.
    pub resources: RunResources,
    /// Handles to history.
    pub context: HistoryHandles,
    /// The turn's state, as the `load_state` hooks gave it.
    #[serde(default)]
    pub state: JsonObject,
    /// Facts about the running host.
    pub runtime: RuntimeContext,
    /// The binding's configuration of the runner.
    #[serde(default)]
    pub config: JsonObject,
    /// What the host's hooks made of the event.
    #[serde(default)]
    pub adapter: AdapterContext,
    /// Whatever else belongs to it.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

/// Why a run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunTrigger {
    /// The event type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The binding that matched it.
    pub binding_id: BindingId,
}

/// The conversation a run belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConversationContext {
    /// The session.
    pub session_id: SessionId,
    /// The chat at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// The thread within the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

/// What a run may use: its frozen grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunResources {
    /// The grant.
    pub grant: Grant,
}

/// Handles to what came before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryHandles {
    /// The session's tape.
    pub tape: TapeName,
}

/// Facts about the running host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeContext {
    /// The workspace directory.
    pub workspace: String,
    /// When the run began.
    pub started_at: Timestamp,
    /// When it must be over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// What the host's hooks made of the event, for runners that want it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdapterContext {
    /// The built prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Content>,
}
