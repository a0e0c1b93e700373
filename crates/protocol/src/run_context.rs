//! Context that a runner receives when a run begins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ActorRef, Artifact, BindingId, Content, ConversationKind, DeliveryTarget, Event, EventInput, EventOrigin, Grant,
    JsonObject, RunId, SessionId, SubjectRef, TapeName, Timestamp,
};

/// Context of a run. It has the event but no message history, only handles to request the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunContext {
    /// Id of the run.
    pub run_id: RunId,
    /// Reason of the run.
    pub trigger: RunTrigger,
    /// Event that the run serves.
    pub event: Event,
    /// Conversation of the event.
    pub conversation: ConversationContext,
    /// Originator of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<ActorRef>,
    /// Target of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectRef>,
    /// Text and attachments of the event.
    pub input: EventInput,
    /// Attachments with inline content of the events that the run serves, as artifacts: `artifacts.read` returns their
    /// content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Artifact>,
    /// Destination of replies.
    pub delivery: DeliveryTarget,
    /// Resources that the run may use.
    pub resources: RunResources,
    /// Handles to the history.
    pub context: HistoryHandles,
    /// Stored state of the runner when the run began, by scope: an object of keys and values for each scope that the
    /// grant covers.
    #[serde(default)]
    pub state: JsonObject,
    /// Values of the `load_state` hooks, if the grant covers the prompts of the host.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub turn_state: JsonObject,
    /// Facts about the running host.
    pub runtime: RuntimeContext,
    /// Configuration of the runner, from the binding.
    #[serde(default)]
    pub config: JsonObject,
    /// Results of the host's hooks for this event.
    #[serde(default)]
    pub adapter: AdapterContext,
    /// Further data.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

impl RunContext {
    /// Line of the comma command that the run serves, if any. The input decides: a child run has the event of its parent
    /// and serves its own prompt, which is no command.
    pub fn command_line(&self) -> Option<&str> {
        self.input.command_line().filter(|_| self.event.is_message())
    }
}

/// Reason of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunTrigger {
    /// Type of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// Binding that matched the event.
    pub binding_id: BindingId,
    /// Trust in the source of the event, assigned by the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<EventOrigin>,
    /// Time at which the host accepted the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<Timestamp>,
}

/// Conversation of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConversationContext {
    /// Session of the conversation.
    pub session_id: SessionId,
    /// Chat at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// Kind of the chat, if the source knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ConversationKind>,
    /// Thread within the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

/// Resources that a run may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunResources {
    /// Grant of the run, which does not change.
    pub grant: Grant,
}

/// Handles to the history of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryHandles {
    /// Tape of the session.
    pub tape: TapeName,
}

/// Facts about the running host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeContext {
    /// Workspace directory.
    pub workspace: String,
    /// Start time of the run.
    pub started_at: Timestamp,
    /// Time at which the run must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Maximum number of model calls of the run, including those of its child runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u64>,
    /// Version of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Results of the host's hooks for an event; runners may ignore them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdapterContext {
    /// Prompt from the `build_prompt` hooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Content>,
}
