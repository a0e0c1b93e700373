//! Requests and responses of `history.*`: the dialogue without tool calls and notes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ActorRef, Artifact, Content, ContentPart, EntryId, Event, EventId, MessageRole, RunId, SessionId};

/// Request for the newest messages that contain a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistorySearchCall {
    /// Session to search; absent: the run's own. Another session needs a grant for the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The text.
    pub text: String,
    /// Maximum number of messages, at least 1.
    pub limit: usize,
}

/// A message of the dialogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryMessage {
    /// Entry of the message on the tape.
    pub entry: EntryId,
    /// Author of the message: the user or the assistant.
    pub role: MessageRole,
    /// Text of the message; parts that are not text are omitted.
    pub text: String,
    /// Date of the entry.
    pub date: String,
    /// Run that ingested or wrote the message.
    #[serde(default)]
    pub run_id: Option<RunId>,
    /// Content of the message, with its images and other parts.
    #[serde(default)]
    pub content: Content,
    /// Events that the message was built from, in order: several if they were combined into one turn. Empty for
    /// messages of the assistant, and for messages from before the host recorded them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<MessageEvent>,
}

/// A message that arrived during the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SteeredMessage {
    /// Prompt of the message, as `steering.take` returns it.
    pub prompt: Content,
    /// Event of the message.
    pub event: MessageEvent,
}

/// Event that a message was built from: who said what, without the additions of the prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageEvent {
    /// Id of the event.
    pub event_id: EventId,
    /// Originator of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<ActorRef>,
    /// Thread within the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Text of the event itself.
    pub text: String,
    /// Further parts of the event: images and other attachments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<ContentPart>,
    /// Those with inline content, as artifacts, if the grant covers artifacts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Artifact>,
}

impl From<&Event> for MessageEvent {
    fn from(event: &Event) -> Self {
        Self {
            event_id: event.event_id.clone(),
            actor: event.actor.clone(),
            thread_id: event.thread_id.clone(),
            text: event.input.plain_text().to_owned(),
            contents: event.input.contents.clone(),
            attachments: Vec::new(),
        }
    }
}
