//! Rows of the store other than entries.

use std::fmt;

use capstan_protocol::{
    BindingId, EntryId, EventKey, Grant, OutboundMessage, OutboxStatus, Outcome, RunId, RunnerId, SessionId, TapeName,
    Timestamp, Usage, WorkspaceId,
};
use serde::{Deserialize, Serialize};

use crate::{ChainHash, LeaseEpoch, OutboxId};

/// Owner of the events in flight and of the pending messages in a copy of the store. The name of no process: what was done
/// after the copy was made is unknown, so that a store that was restored from it repeats none of this work.
pub const RESTORED_OWNER: &str = "restored-copy";

/// Tape to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTape {
    /// Name of the tape.
    pub name: TapeName,
    /// Session of the tape, if any.
    pub session: Option<SessionId>,
    /// Workspace of the session.
    pub workspace: Option<WorkspaceId>,
    /// Newest entry in the external tape store; `EntryId(0)` for none.
    pub head: EntryId,
}

impl NewTape {
    /// Tape without a session.
    pub fn without_session(name: TapeName) -> Self {
        Self { name, session: None, workspace: None, head: EntryId(0) }
    }
}

/// Tape in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TapeRecord {
    /// Name of the tape.
    pub name: TapeName,
    /// Session of the tape, if any.
    pub session: Option<SessionId>,
    /// Workspace of the session.
    pub workspace: Option<WorkspaceId>,
    /// Newest entry; `EntryId(0)` if the tape is empty.
    pub head: EntryId,
    /// Number of the current generation, from 1.
    pub generation: u32,
    /// Last entry before the current generation. For a fork: the parent's last entry at the branch point.
    pub begins_after: EntryId,
    /// Previous generations, oldest first.
    #[serde(rename = "past")]
    pub past_generations: Vec<TapeGeneration>,
    /// Last entry that was replicated to the external tape store.
    #[serde(rename = "handed_over")]
    pub replicated_up_to: EntryId,
    /// Last entry that was imported with its own id, from a file or an external tape store. Up to this entry ids may
    /// have gaps; after it they are consecutive.
    pub brought_along: EntryId,
    /// Branch point, if the tape is a fork.
    pub fork: Option<ForkPoint>,
    /// Hash of the newest entry, or the start of the chain.
    #[serde(skip)]
    pub head_hash: ChainHash,
}

/// Generation of a tape that was ended by a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeGeneration {
    /// Number of the generation, from 1.
    pub number: u32,
    /// Last entry before the generation.
    pub begins_after: EntryId,
    /// Last entry of the generation.
    pub up_to: EntryId,
    /// Set by `tape reset --archive`; a mark for people, without an effect on storage.
    pub archived: bool,
}

/// Branch point and state of a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForkPoint {
    /// Tape that the fork continues.
    pub parent: TapeName,
    /// Last entry of the parent that the fork sees.
    pub position: EntryId,
    /// State of the fork.
    pub state: ForkState,
}

/// State of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkState {
    /// Entries can be appended.
    Open,
    /// The entries were merged into the parent.
    Merged,
    /// The fork was closed without a merge.
    Discarded,
}

/// Status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The runner has not started.
    Created,
    /// The run is active, or its process died and recovery has not marked it yet.
    Running,
    /// The run succeeded.
    Completed,
    /// The run failed.
    Failed,
    /// The run was cancelled.
    Cancelled,
    /// The run exceeded its time limit.
    Timeout,
    /// The process died; recovery has marked the run.
    Interrupted,
}

impl RunStatus {
    /// Returns true if the run has not ended.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Created | Self::Running)
    }

    /// Name of the status, as in JSON.
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

/// Run in the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Id of the run.
    pub run_id: RunId,
    /// Session of the run.
    pub session: SessionId,
    /// Tape of the run.
    pub tape: TapeName,
    /// Newest entry of the tape at the start of the run; all entries of the run follow it.
    pub begins_after: EntryId,
    /// Parent run, if this is a child run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// Event that the run serves.
    pub event: EventKey,
    /// Further events of the same turn batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<EventKey>,
    /// Binding that matched the event.
    pub binding: BindingId,
    /// Runner that executes the run.
    pub runner: RunnerId,
    /// Authority of the run.
    pub grant: Grant,
    /// Status of the run.
    pub status: RunStatus,
    /// Start time.
    pub started_at: Timestamp,
    /// Time at which the run must have ended; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// End time; `None` while the run is open.
    pub ended_at: Option<Timestamp>,
    /// Tokens used, as far as known.
    pub usage: Option<Usage>,
    /// True if the run may have effects that the host does not see, such as calls of a plugin's own tools. Such a run
    /// is never repeated automatically. Assumed for records without the field.
    #[serde(default = "unknown_effects")]
    pub bypasses_host: bool,
    /// True if cancellation was requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_requested: bool,
}

fn unknown_effects() -> bool {
    true
}

/// Accepted event that is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlightEvent {
    /// Identity of the event.
    pub key: EventKey,
    /// Session of the event.
    pub session: SessionId,
    /// Tape of the session.
    pub tape: TapeName,
    /// Entry that records the acceptance.
    pub entry: EntryId,
    /// Time of acceptance.
    pub accepted_at: Timestamp,
    /// Process responsible for the event, as long as that process lives. `None`: accepted before owners were recorded.
    pub owner: Option<String>,
    /// Number of crashes that the event may have caused: adoptions after its owner died while serving it.
    pub adoptions: u32,
    /// Run and entry of its message, once a run has ingested it.
    pub ingestion: Option<EventIngestion>,
}

/// Ingestion of an event's message into a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventIngestion {
    /// Run that ingested the message last.
    pub run_id: RunId,
    /// Entry of the message.
    pub message_entry: EntryId,
}

/// Event that has an outcome, and its tape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledEvent {
    /// Identity of the event.
    pub key: EventKey,
    /// Tape of the event.
    pub tape: TapeName,
}

/// Accepted event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRecord {
    /// Identity of the event.
    pub key: EventKey,
    /// Session of the event.
    pub session: SessionId,
    /// Tape of the session.
    pub tape: TapeName,
    /// Entry that records the acceptance.
    pub entry: EntryId,
    /// Time of acceptance.
    pub accepted_at: Timestamp,
    /// Outcome, if the event is settled, and the run that settled it.
    pub outcome: Option<(Outcome, Option<RunId>)>,
}

/// Message to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct NewOutboxMessage {
    /// The message.
    pub message: OutboundMessage,
    /// Event that the message answers.
    pub event: EventKey,
    /// Time at which the message was staged.
    pub staged_at: Timestamp,
    /// Process that sends the message, as long as that process lives.
    pub owner: String,
}

/// Message in the outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRecord {
    /// Row of the message.
    pub id: OutboxId,
    /// The message.
    pub message: OutboundMessage,
    /// Event that the message answers.
    pub event: EventKey,
    /// Time at which the message was staged.
    pub staged_at: Timestamp,
    /// Process that sends the message, as long as that process lives. `None`: staged before owners were recorded.
    pub owner: Option<String>,
    /// Delivery status.
    pub status: OutboxStatus,
}

/// Lease of a tape, which allows its owner to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The tape.
    pub tape: TapeName,
    /// Current epoch.
    pub epoch: LeaseEpoch,
    /// Owner of the lease; `None` after a release.
    pub owner: Option<String>,
    /// Expiry time.
    pub expires_at: Timestamp,
}

/// Damage in a store, found by `verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IntegrityProblem {
    /// Damaged tape, if the problem concerns one.
    pub tape: Option<TapeName>,
    /// Description of the problem.
    pub message: String,
}
