//! Batches: sets of facts that a store commits atomically. All writes are batches.

use std::sync::Arc;

use capstan_protocol::{
    BlobHash, EntryId, EventKey, Outcome, RunId, SessionId, TapeName, Timestamp, Usage, WorkspaceId,
};
use serde_json::Value;

use crate::{
    Entry, EntryDraft, KeyValueRecord, NewOutboxMessage, NewTape, OutboxStatus, QuotaUpdate, RunRecord, RunStatus,
};

/// Fencing token of a tape's lease, incremented when the owner changes. A writer with an old epoch is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseEpoch(pub u64);

/// Row id of an outbound message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxId(pub u64);

/// Lease under which a batch is written. The batch fails if the current epoch of the lease differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The tape.
    pub tape: TapeName,
    /// Epoch of the writer.
    pub epoch: LeaseEpoch,
}

/// Liveness of a lease's current owner, known from evidence other than time, such as a file lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerLiveness {
    /// Owner that was checked. If the lease has another owner by now, the check does not apply.
    pub owner: String,
    /// A live owner keeps its lease beyond the expiry time; the lease of a dead owner is void at once.
    pub is_alive: bool,
}

/// Condition that must hold when a batch is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchPrecondition {
    /// The newest entry of the tape is `head` (`EntryId(0)`: the tape is empty).
    TapeHead {
        /// The tape.
        tape: TapeName,
        /// Expected newest entry.
        head: EntryId,
    },
    /// The namespace has not changed since this revision (0: it never had a value).
    NamespaceRevision {
        /// The namespace.
        namespace: String,
        /// Expected revision.
        revision: u64,
    },
    /// The event is in flight, and this process owns it.
    EventOwner {
        /// The event.
        key: EventKey,
        /// Expected owner.
        owner: String,
    },
}

/// Reference to an entry, by its id or by the position of the fact that appends it in the same batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryRef {
    /// Existing entry.
    Id(EntryId),
    /// Entry that the fact at this position of the batch appends.
    InBatch(usize),
}

impl EntryRef {
    /// Id of the entry, given the outputs of the facts applied so far.
    pub(crate) fn resolve(self, outputs: &[FactOutput]) -> Option<EntryId> {
        match self {
            Self::Id(id) => Some(id),
            Self::InBatch(position) => match outputs.get(position)? {
                FactOutput::Entry(id) => Some(*id),
                FactOutput::Nothing | FactOutput::WithinQuota(_) | FactOutput::Outbox(_) | FactOutput::Lease(_) => None,
            },
        }
    }
}

/// Single change of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// Creates a tape. An existing tape is not changed, except that a missing session or workspace is set.
    EnsureTape(NewTape),
    /// Appends an entry to a tape.
    AppendEntry {
        /// The tape, which must exist.
        tape: TapeName,
        /// The entry.
        entry: EntryDraft,
    },
    /// Appends entries that already have ids; each id must be greater than the head before it.
    ImportEntries {
        /// The tape, which must exist.
        tape: TapeName,
        /// The entries, in order.
        entries: Vec<Entry>,
    },
    /// Records that the external tape store has the entries up to `up_to`, and removes their rows.
    MarkReplicated {
        /// The tape.
        tape: TapeName,
        /// Last replicated entry.
        up_to: EntryId,
    },
    /// Creates a tape that continues another one after `position`; its entry ids continue from there.
    ForkTape {
        /// Name of the new tape, which must not exist.
        fork: TapeName,
        /// Tape that the fork continues.
        parent: TapeName,
        /// Last entry of the parent that the fork sees.
        position: EntryId,
    },
    /// Closes a fork after it was merged or discarded. A closed fork is read-only.
    CloseFork {
        /// The fork.
        fork: TapeName,
        /// True if the entries were merged into the parent.
        is_merged: bool,
    },
    /// Starts a new generation of the tape after its head.
    ResetTape {
        /// The tape.
        tape: TapeName,
        /// Keep the old generation permanently.
        archive: bool,
    },
    /// Accepts an event. Fails the batch if the key is already known.
    AcceptEvent {
        /// Identity of the event.
        key: EventKey,
        /// Session of the event.
        session: SessionId,
        /// Tape of the session.
        tape: TapeName,
        /// Entry that records the acceptance.
        entry: EntryRef,
        /// Time of acceptance.
        accepted_at: Timestamp,
        /// Process that accepted the event and is responsible for it while it lives.
        owner: String,
    },
    /// Transfers an event in flight to another process. Fails the batch if the event is settled or not owned by `from`.
    AdoptEvent {
        /// The event.
        key: EventKey,
        /// Previous owner; `None` if it had none.
        from: Option<String>,
        /// New owner.
        owner: String,
        /// True if the event may have caused the crash. Such adoptions count toward the limit.
        was_in_progress: bool,
    },
    /// Records that a run ingested an event and its message is on the tape. Fails the batch if the event is not in
    /// flight.
    IngestEvent {
        /// The event.
        key: EventKey,
        /// The run.
        run_id: RunId,
        /// Entry of the message.
        message: EntryRef,
    },
    /// Settles an event with an outcome. Fails the batch if the event is already settled.
    SettleEvent {
        /// The event.
        key: EventKey,
        /// Outcome of the event.
        outcome: Outcome,
        /// Run that settled the event, if any.
        run_id: Option<RunId>,
    },
    /// Adds a run to the ledger.
    OpenRun(Box<RunRecord>),
    /// Marks a created run as running. A run in any other status is not changed.
    StartRun {
        /// The run.
        run_id: RunId,
    },
    /// Ends a run. A run that has ended is not changed.
    EndRun {
        /// The run.
        run_id: RunId,
        /// Final status.
        status: RunStatus,
        /// Tokens used, as far as known.
        usage: Option<Usage>,
        /// End time.
        ended_at: Timestamp,
    },
    /// Requests the cancellation of a run. A run that has ended is not changed.
    RequestCancel {
        /// The run.
        run_id: RunId,
    },
    /// Adds a message to the outbox.
    EnqueueOutbound(NewOutboxMessage),
    /// Transfers a pending message to another process. Fails the batch if the message is not pending or not owned by
    /// `from`.
    AdoptOutbound {
        /// Row of the message.
        id: OutboxId,
        /// Previous owner; `None` if it had none.
        from: Option<String>,
        /// New owner.
        owner: String,
    },
    /// Updates the delivery status of a message.
    RecordDelivery {
        /// Row of the message.
        id: OutboxId,
        /// New status.
        status: OutboxStatus,
    },
    /// Stores content by its hash, unless it exists.
    PutBlob {
        /// Hash of the content.
        hash: BlobHash,
        /// The content.
        bytes: Arc<[u8]>,
    },
    /// Removes content, if it exists. Equal content is stored only once, so use this only for content that no other
    /// record can refer to.
    RemoveBlob {
        /// Hash of the content.
        hash: BlobHash,
    },
    /// Sets a value of the session state of a tape.
    PutState {
        /// The tape.
        tape: TapeName,
        /// The key.
        key: String,
        /// The value; `null` removes the key.
        value: Value,
    },
    /// Stores a value under a key of a namespace.
    PutKeyValue(KeyValueRecord),
    /// Changes values of a namespace if the result is within its quota, and appends the entry for the result, if there is
    /// one. The quota holds across concurrent writers, and an exceeded quota does not fail the batch.
    UpdateWithinQuota(Box<QuotaUpdate>),
    /// Removes a key of a namespace.
    RemoveKeyValue {
        /// The namespace.
        namespace: String,
        /// The key.
        key: String,
        /// Time of the removal.
        removed_at: Timestamp,
    },
    /// Assigns an identity to a workspace, unless it has one.
    RegisterWorkspace {
        /// Resolved path of the workspace.
        path: String,
        /// Identity of the workspace.
        identity: WorkspaceId,
    },
    /// Acquires or renews the lease of a tape, unless another owner holds it. An owner whose [`OwnerLiveness`] is known
    /// holds its lease as long as it lives, any other owner until the expiry time.
    TakeLease {
        /// The tape, which need not exist.
        tape: TapeName,
        /// New owner.
        owner: String,
        /// Current time of the new owner's clock.
        now: Timestamp,
        /// Expiry time.
        expires_at: Timestamp,
        /// Liveness of the current owner, if known.
        owner_liveness: Option<OwnerLiveness>,
    },
    /// Releases the lease of a tape, if this owner holds it.
    ReleaseLease {
        /// The tape.
        tape: TapeName,
        /// Owner of the lease.
        owner: String,
    },
}

/// Durability of a batch when its commit returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CommitDurability {
    /// The batch is synced to disk.
    #[default]
    Durable,
    /// The batch is written and survives a crash of the process; it is synced shortly afterwards. A power failure may
    /// lose it, but only together with all later batches. For changes that have no effect outside of the host yet: a
    /// later durable commit makes them durable too.
    Ordered,
}

/// Facts to be committed together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Lease under which the batch is written.
    pub fence: Option<Fence>,
    /// Conditions that must hold.
    pub preconditions: Vec<BatchPrecondition>,
    /// Reject writes to tapes with replicated entries. Set by writers without an external tape store.
    pub reject_replicated: bool,
    /// Durability when the commit returns.
    pub durability: CommitDurability,
    /// The facts, in order.
    pub facts: Vec<Fact>,
}

impl Batch {
    /// Empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fact and returns its position.
    pub fn push(&mut self, fact: Fact) -> usize {
        self.facts.push(fact);
        self.facts.len() - 1
    }

    /// Appends an entry to a tape and returns a reference to it for later facts of the batch.
    pub fn append(&mut self, tape: &TapeName, entry: EntryDraft) -> EntryRef {
        EntryRef::InBatch(self.push(Fact::AppendEntry { tape: tape.clone(), entry }))
    }

    /// Returns true if the batch has no facts.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Tapes to which the batch appends entries, without duplicates.
    pub fn written_tapes(&self) -> Vec<TapeName> {
        let mut tapes = Vec::new();
        for fact in &self.facts {
            let tape = match fact {
                Fact::AppendEntry { tape, .. } | Fact::ImportEntries { tape, .. } => tape,
                Fact::UpdateWithinQuota(change) => &change.tape,
                _ => continue,
            };
            if !tapes.contains(tape) {
                tapes.push(tape.clone());
            }
        }
        tapes
    }
}

/// Value that the store assigned when it applied a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactOutput {
    /// No value.
    Nothing,
    /// Id of the appended entry.
    Entry(EntryId),
    /// True if the quota update was applied.
    WithinQuota(bool),
    /// Row of the outbound message.
    Outbox(OutboxId),
    /// Epoch of the lease, or `None` if another owner holds it.
    Lease(Option<LeaseEpoch>),
}

/// Result of a commit: the output of each fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitReceipt {
    /// Outputs, in the order of the facts.
    pub outputs: Vec<FactOutput>,
}

impl CommitReceipt {
    /// Id of a referenced entry.
    pub fn entry_id(&self, entry: EntryRef) -> Option<EntryId> {
        entry.resolve(&self.outputs)
    }
}
