//! Requests and responses of `tape.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Content, EntryId, JsonObject, SessionId, TapeName};

/// A handoff: the anchor to be written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HandoffCall {
    /// Name of the anchor.
    pub name: String,
    /// State that the context starts from.
    #[serde(default)]
    pub state: JsonObject,
}

/// An event to be written that no view shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoteCall {
    /// Name of the event.
    pub name: String,
    /// Data of the event.
    pub data: Value,
}

/// A message with the role `user` to be written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SayCall {
    /// Content of the message.
    pub content: Content,
}

/// Request for a new generation of the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResetCall {
    /// Mark the old generation as archived.
    #[serde(default)]
    pub archive: bool,
}

/// Request for a fork of the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForkCall {
    /// Last entry that the fork shares with the tape; absent: the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<EntryId>,
}

/// A fork of a tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForkSummary {
    /// Name of the fork, as `capstan run --tape` and `capstan tape merge` take it.
    pub tape: TapeName,
    /// Session whose turns read the tape up to the position and the fork, and write to the fork.
    pub session_id: SessionId,
    /// Last entry that the fork shares with the tape.
    pub position: EntryId,
}

/// Request for the newest anchors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnchorsCall {
    /// Maximum number of anchors.
    pub limit: usize,
}

/// Request for the newest entries that contain a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TapeSearchCall {
    /// The text.
    pub text: String,
    /// Maximum number of entries.
    pub limit: usize,
}

/// Name, head and anchors of a tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TapeSummary {
    /// Name of the tape.
    pub name: TapeName,
    /// Newest entry.
    pub head: EntryId,
    /// Number of anchors.
    pub anchors: u64,
    /// Name of the newest anchor.
    pub last_anchor: Option<String>,
    /// Number of entries after the newest anchor.
    pub entries_since_last_anchor: u64,
}

/// An entry of a tape, as a run reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapeEntry {
    /// Position on the tape.
    pub id: EntryId,
    /// Kind of entry: `message`, `tool_call`, `tool_result`, `event`, `anchor`, `error`, or a kind of another system.
    pub kind: String,
    /// Content of the entry, by its kind.
    #[serde(default)]
    pub payload: Value,
    /// Metadata, such as the run that the entry belongs to.
    #[serde(default)]
    pub meta: JsonObject,
    /// Date of the entry, as stored.
    pub date: String,
    /// Keys of other systems.
    #[serde(flatten)]
    pub extra: JsonObject,
}

impl TapeEntry {
    /// Name of an anchor or an event.
    pub fn name(&self) -> Option<&str> {
        self.payload.get("name")?.as_str()
    }
}
