//! What a runner is given when a run begins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ActorRef, BindingId, Content, Delivery, Event, Grant, Input, Map, RunId, SessionId, SubjectRef, TapeName, Timestamp,
};

/// The run's context. Event first: there is no message history in it, only handles to ask for one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunContext {
    /// This run.
    pub run_id: RunId,
    /// Why it runs.
    pub trigger: Trigger,
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
    pub input: Input,
    /// Where answers go.
    pub delivery: Delivery,
    /// What the run may use.
    pub resources: Resources,
    /// Handles to history.
    pub context: ContextAccess,
    /// The turn's state, as the `load_state` hooks gave it.
    #[serde(default)]
    pub state: Map,
    /// Facts about the running host.
    pub runtime: RuntimeContext,
    /// The binding's configuration of the runner.
    #[serde(default)]
    pub config: Map,
    /// What the host's hooks made of the event.
    #[serde(default)]
    pub adapter: Adapter,
    /// Whatever else belongs to it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map,
}

/// Why a run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trigger {
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
pub struct Resources {
    /// The grant.
    pub grant: Grant,
}

/// Handles to what came before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextAccess {
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
pub struct Adapter {
    /// The built prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Content>,
}
