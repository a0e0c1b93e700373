//! What has happened, as a run may look it up: what was said, and what was done about each event.

use async_trait::async_trait;
use capstan_protocol::{ApiError, EntryId, Event, EventId, MessageRole, Outcome, RunId, SessionId, Timestamp};
use capstan_tape::{EntryOrder, EventLogRecord};
use serde::{Deserialize, Serialize};

/// A part of a list, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorPage<T> {
    /// The part.
    pub items: Vec<T>,
    /// Asks for the next part, of the same list and by the same method; none at the end. It means nothing else.
    pub next: Option<String>,
}

/// Which part of what happened is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// The session; absent: the run's own. Another one needs a grant that reaches over the workspace.
    pub session: Option<SessionId>,
    /// Which end comes first.
    pub order: EntryOrder,
    /// Where the last part ended.
    pub cursor: Option<String>,
    /// How many at most.
    pub limit: usize,
}

/// Something that was said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryMessage {
    /// The entry of the tape that tells of it.
    pub entry: EntryId,
    /// Who said it: the user's side, or the assistant.
    pub role: MessageRole,
    /// The text; parts that are not text are left out.
    pub text: String,
    /// When.
    pub date: String,
    /// The run that took it in, or said it.
    pub run_id: Option<RunId>,
}

/// The history of conversations, as a run may read it: what was said, without tool calls and notes.
#[async_trait]
pub trait HistoryApi: Send + Sync + 'static {
    /// A part of it.
    async fn page(&self, call: PageRequest) -> Result<CursorPage<HistoryMessage>, ApiError>;

    /// What was said with this text, the newest first; of another session only where the grant reaches so far.
    async fn search(
        &self,
        session: Option<SessionId>,
        text: &str,
        limit: usize,
    ) -> Result<Vec<HistoryMessage>, ApiError>;
}

/// An event that was accepted, and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// The event.
    pub event: Event,
    /// Its session.
    pub session_id: SessionId,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// How it ended; none while it is in flight.
    pub outcome: Option<Outcome>,
    /// The run that ended it.
    pub run_id: Option<RunId>,
}

/// The log of events, as a run may read it.
#[async_trait]
pub trait EventsApi: Send + Sync + 'static {
    /// An event that came from where the run's own event came from, by its id.
    async fn get(&self, id: &EventId) -> Result<EventRecord, ApiError>;

    /// A part of the event log. The limit counts entries of the tape: a part may have fewer facts, or more, as outcomes and
    /// deliveries stand beside the tape.
    async fn page(&self, call: PageRequest) -> Result<CursorPage<EventLogRecord>, ApiError>;
}
