//! The rows of the journal beside the entries.

use std::fmt;

use capstan_protocol::{
    BindingId, EntryId, EventKey, Grant, OutboundMessage, OutboxStatus, Outcome, RunId, RunnerId, SessionId, TapeName,
    Timestamp, Usage, WorkspaceId,
};
use serde::{Deserialize, Serialize};

use crate::{LeaseEpoch, OutboxId};

/// A tape to be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTape {
    /// Its name.
    pub name: TapeName,
    /// The session it records, if it records one.
    pub session: Option<SessionId>,
    /// The workspace of that session.
    pub workspace: Option<WorkspaceId>,
    /// The newest entry it already has in another tape store; `EntryId(0)` for none.
    pub head: EntryId,
}

impl NewTape {
    /// A tape that belongs to no session.
    pub fn with_name(name: TapeName) -> Self {
        Self { name, session: None, workspace: None, head: EntryId(0) }
    }
}

/// A tape as the journal knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TapeRecord {
    /// Its name.
    pub name: TapeName,
    /// The session it records.
    pub session: Option<SessionId>,
    /// The workspace of that session.
    pub workspace: Option<WorkspaceId>,
    /// Its newest entry; `EntryId(0)` when it is empty.
    pub head: EntryId,
    /// Which generation it is, from 1 on.
    pub generation: u32,
    /// The last entry before this generation. A fork has its parent's, as it was when it branched off.
    pub begins_after: EntryId,
    /// The generations before this one, oldest first.
    pub past: Vec<TapeGeneration>,
    /// The last entry that was handed over to another tape store.
    pub handed_over: EntryId,
    /// The last entry that came with an id of its own, from a file or another tape store: up to there ids may have
    /// gaps, after it each follows the one before.
    pub brought_along: EntryId,
    /// Where it branched off, if it is a fork.
    pub fork: Option<ForkPoint>,
}

/// A generation of a tape that a reset ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeGeneration {
    /// Which one it was, from 1 on.
    pub number: u32,
    /// The last entry before it.
    pub begins_after: EntryId,
    /// Its last entry.
    pub up_to: EntryId,
    /// Whether it is kept for good.
    pub archived: bool,
}

/// Where a fork branched off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForkPoint {
    /// The tape it continues.
    pub parent: TapeName,
    /// The last entry of the parent that it sees.
    pub position: EntryId,
    /// Whether it is still open.
    pub state: ForkState,
}

/// The life of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkState {
    /// Entries can be appended.
    Open,
    /// Its entries joined the parent.
    Merged,
    /// Its entries were dropped.
    Discarded,
}

/// The life of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Its runner has not started.
    Created,
    /// It goes on, or its process died.
    Running,
    /// It ended well.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its time was up.
    Timeout,
    /// Its process died.
    Interrupted,
}

impl RunStatus {
    /// Whether it has not ended.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Created | Self::Running)
    }

    /// The status as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A run in the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionId,
    /// Its tape.
    pub tape: TapeName,
    /// The newest entry of the tape when it began: everything of the run comes after it.
    pub begins_after: EntryId,
    /// The run that began it, if it is a child run: it serves a part of what that one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// The event it serves.
    pub event: EventKey,
    /// Others that it serves with it, as one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<EventKey>,
    /// The binding that matched.
    pub binding: BindingId,
    /// The runner that serves it.
    pub runner: RunnerId,
    /// What it may do.
    pub grant: Grant,
    /// Where it stands.
    pub status: RunStatus,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// What it used, as far as known.
    pub usage: Option<Usage>,
    /// It may have effects that the host does not see, a plugin's own tools for one: it is never repeated by itself.
    /// Of a run that does not say, nothing else can be assumed.
    #[serde(default = "unknown_effects")]
    pub bypasses_host: bool,
    /// Somebody wants it to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_requested: bool,
}

fn unknown_effects() -> bool {
    true
}

/// An accepted event that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlightEvent {
    /// The event.
    pub key: EventKey,
    /// Its session.
    pub session: SessionId,
    /// Its tape.
    pub tape: TapeName,
    /// The entry that tells of it.
    pub entry: EntryId,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// The process that sees to it while it lives. Events accepted before this was recorded have none.
    pub owner: Option<String>,
    /// How often it was taken over from a process that may have died of it.
    pub adoptions: u32,
    /// Where its message stands, once a run took it in.
    pub ingestion: Option<EventIngestion>,
}

/// Where the message of an event stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventIngestion {
    /// The run that took it in last.
    pub run_id: RunId,
    /// The message.
    pub message: EntryId,
}

/// An event that has ended, and the tape it stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledEvent {
    /// The event.
    pub key: EventKey,
    /// Its tape.
    pub tape: TapeName,
}

/// An accepted event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRecord {
    /// The event.
    pub key: EventKey,
    /// Its session.
    pub session: SessionId,
    /// Its tape.
    pub tape: TapeName,
    /// The entry that tells of it.
    pub entry: EntryId,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// How it ended, if it has, and the run that ended it.
    pub outcome: Option<(Outcome, Option<RunId>)>,
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct NewOutbound {
    /// The message.
    pub message: OutboundMessage,
    /// The event it answers.
    pub event: EventKey,
    /// When it was staged.
    pub staged_at: Timestamp,
    /// The process that sends it while it lives.
    pub owner: String,
}

/// A message in the outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRecord {
    /// The row.
    pub id: OutboxId,
    /// The message.
    pub message: OutboundMessage,
    /// The event it answers.
    pub event: EventKey,
    /// When it was staged.
    pub staged_at: Timestamp,
    /// The process that sends it while it lives. Messages staged before this was recorded have none.
    pub owner: Option<String>,
    /// What became of it.
    pub status: OutboxStatus,
}

/// A tape's lease: who may write to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The tape.
    pub tape: TapeName,
    /// How often it changed hands.
    pub epoch: LeaseEpoch,
    /// Who holds it; nobody when it was released.
    pub owner: Option<String>,
    /// Until when.
    pub expires_at: Timestamp,
}

/// Something wrong in a store, found by `verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IntegrityProblem {
    /// The tape it concerns, if it concerns one.
    pub tape: Option<TapeName>,
    /// What is wrong.
    pub message: String,
}
