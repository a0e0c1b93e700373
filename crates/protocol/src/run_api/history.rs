//! Requests and responses of `history.*`: the dialogue without tool calls and notes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{EntryId, MessageRole, RunId, SessionId};

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
}
