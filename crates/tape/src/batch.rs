//! The one way to write: a batch of facts, applied whole or not at all.

use std::sync::Arc;

use capstan_protocol::{
    BlobHash, EntryId, EventKey, Outcome, RunId, SessionId, TapeName, Timestamp, Usage, WorkspaceId,
};
use serde_json::Value;

use crate::{Entry, EntryDraft, KeyValueRecord, NewOutbound, NewTape, OutboxStatus, QuotaUpdate, RunRecord, RunStatus};

/// How often a tape's lease has changed hands. A writer with an old epoch is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseEpoch(pub u64);

/// The row of an outbound message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxId(pub u64);

/// Under whose lease a batch is written: it fails when the tape's lease has another epoch by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The tape.
    pub tape: TapeName,
    /// The epoch the writer holds.
    pub epoch: LeaseEpoch,
}

/// What the taker of a lease knows about its present owner by other means than time, such as a file lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerLiveness {
    /// The owner that was judged. When another holds the lease by now, nothing is known about that one.
    pub owner: String,
    /// Whether it is alive: then it keeps its lease even past its time; if not, its lease is void at once.
    pub is_alive: bool,
}

/// What must hold when a batch is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchPrecondition {
    /// The newest entry of the tape is this one (`EntryId(0)`: there is none).
    TapeHead {
        /// The tape.
        tape: TapeName,
        /// Its newest entry.
        head: EntryId,
    },
    /// Nothing was kept in the space since (0: nothing ever was).
    NamespaceRevision {
        /// The space.
        namespace: String,
        /// How often it had changed.
        revision: u64,
    },
}

/// An entry, by its id or by the position of the fact that appends it in the same batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryRef {
    /// An entry that is there already.
    Id(EntryId),
    /// The entry that the fact at this position of the batch appends.
    InBatch(usize),
}

impl EntryRef {
    /// The id it means, given what the facts of the batch were assigned so far.
    pub(crate) fn resolve(self, assigned: &[FactOutput]) -> Option<EntryId> {
        match self {
            Self::Id(id) => Some(id),
            Self::InBatch(position) => match assigned.get(position)? {
                FactOutput::Entry(id) => Some(*id),
                FactOutput::Nothing | FactOutput::WithinQuota(_) | FactOutput::Outbox(_) | FactOutput::Lease(_) => None,
            },
        }
    }
}

/// Something a batch makes true.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// The tape is known. If it was, nothing changes but that it learns its session and workspace when it had none.
    EnsureTape(NewTape),
    /// An entry stands at the end of a tape.
    AppendEntry {
        /// The tape, which must be known.
        tape: TapeName,
        /// The entry.
        entry: EntryDraft,
    },
    /// Entries with ids of their own stand on a tape; each id must be greater than the head before it.
    ImportEntries {
        /// The tape, which must be known.
        tape: TapeName,
        /// The entries, in order.
        entries: Vec<Entry>,
    },
    /// Entries up to this one are kept by another tape store: their rows here may go.
    MarkReplicated {
        /// The tape.
        tape: TapeName,
        /// The last of them.
        up_to: EntryId,
    },
    /// A tape of its own that continues another from a position; its ids go on from there.
    ForkTape {
        /// The new tape, which must not exist.
        fork: TapeName,
        /// The tape it continues.
        parent: TapeName,
        /// The last entry of the parent that it sees.
        position: EntryId,
    },
    /// The fork was merged or discarded: nothing can be appended to it any more.
    CloseFork {
        /// The fork.
        fork: TapeName,
        /// Whether its entries joined the parent.
        is_merged: bool,
    },
    /// A new generation of the tape begins after its head; with `archive` the old one is kept for good.
    ResetTape {
        /// The tape.
        tape: TapeName,
        /// Whether the old generation is kept for good.
        archive: bool,
    },
    /// An event was accepted. Fails the batch as a duplicate when its key is known.
    AcceptEvent {
        /// The event's identity.
        key: EventKey,
        /// Its session.
        session: SessionId,
        /// Its tape.
        tape: TapeName,
        /// The entry that tells of it.
        entry: EntryRef,
        /// When it was accepted.
        accepted_at: Timestamp,
        /// The process that accepted it, and sees to it while it lives.
        owner: String,
    },
    /// A process takes over an event in flight. Fails the batch when it has ended, or is not `from`'s any more.
    AdoptEvent {
        /// The event.
        key: EventKey,
        /// Who had it.
        from: Option<String>,
        /// Who takes it over.
        owner: String,
        /// Whether somebody may have died of it. How often that was is counted.
        was_in_progress: bool,
    },
    /// A run took an event in: its message stands on the tape. Fails the batch when the event is not in flight.
    IngestEvent {
        /// The event.
        key: EventKey,
        /// The run.
        run_id: RunId,
        /// The message.
        message: EntryRef,
    },
    /// An accepted event has ended. Fails the batch when it had ended before.
    SettleEvent {
        /// The event.
        key: EventKey,
        /// How it ended.
        outcome: Outcome,
        /// The run that ended it, if there was one.
        run_id: Option<RunId>,
    },
    /// A run is in the ledger from now on.
    OpenRun(Box<RunRecord>),
    /// The runner of a run that was created starts. Any other stays as it is.
    StartRun {
        /// The run.
        run_id: RunId,
    },
    /// A run ended. One that has ended before stays as it is.
    EndRun {
        /// The run.
        run_id: RunId,
        /// How it ended.
        status: RunStatus,
        /// What it used, as far as known.
        usage: Option<Usage>,
        /// When it ended.
        ended_at: Timestamp,
    },
    /// Somebody wants a run to end. One that has ended stays as it is.
    RequestCancel {
        /// The run.
        run_id: RunId,
    },
    /// A message waits to be sent.
    EnqueueOutbound(NewOutbound),
    /// A process takes over a message that waits. Fails the batch when it no longer waits, or is not `from`'s any more.
    AdoptOutbound {
        /// The row.
        id: OutboxId,
        /// Who had it.
        from: Option<String>,
        /// Who takes it over.
        owner: String,
    },
    /// What became of a message that waited.
    RecordDelivery {
        /// The row.
        id: OutboxId,
        /// What became of it.
        status: OutboxStatus,
    },
    /// A content is kept, once.
    PutBlob {
        /// Its hash.
        hash: BlobHash,
        /// The content.
        bytes: Arc<[u8]>,
    },
    /// A content is gone, if it was there. Only for one that nobody else can have put: contents are kept once, and others may
    /// refer to the same.
    RemoveBlob {
        /// Its hash.
        hash: BlobHash,
    },
    /// A value of the state of a tape's session.
    PutState {
        /// The tape.
        tape: TapeName,
        /// The key.
        key: String,
        /// The value; `null` removes the key.
        value: Value,
    },
    /// A value is kept under a key of a space.
    PutKeyValue(KeyValueRecord),
    /// Values of a space are kept or removed, if it has room for all of them then; an entry tells which it was. So those who
    /// write it at the same time keep its limits together, and none of them fails the batch of another.
    UpdateWithinQuota(Box<QuotaUpdate>),
    /// Nothing is kept under a key of a space any more.
    RemoveKeyValue {
        /// The space.
        namespace: String,
        /// The key.
        key: String,
        /// When.
        removed_at: Timestamp,
    },
    /// A workspace is known under an identity; nothing changes if it was.
    RegisterWorkspace {
        /// The resolved path.
        path: String,
        /// The identity.
        identity: WorkspaceId,
    },
    /// The tape's lease is this owner's, if nobody else holds it. An owner that was [`Judged`] holds it exactly as long as
    /// it lives, any other until its time is up.
    TakeLease {
        /// The tape, which need not be known.
        tape: TapeName,
        /// Who takes it.
        owner: String,
        /// Now, by the taker's clock.
        now: Timestamp,
        /// Until when.
        expires_at: Timestamp,
        /// What the taker knows about the present owner.
        owner_liveness: Option<OwnerLiveness>,
    },
    /// The tape's lease is free again, if this owner held it.
    ReleaseLease {
        /// The tape.
        tape: TapeName,
        /// Who held it.
        owner: String,
    },
}

/// What holds when a commit returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CommitDurability {
    /// The disk has it.
    #[default]
    Durable,
    /// It is written, and a process that is killed has not lost it. A machine whose power goes may lose it, with what came
    /// after it and never without; a moment later the disk has it. This is for what nobody outside was told of yet: a later
    /// durable commit makes it durable too.
    Ordered,
}

/// Facts to be made true together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Under whose lease.
    pub fence: Option<Fence>,
    /// What must hold.
    pub preconditions: Vec<BatchPrecondition>,
    /// Whether it is written by somebody who has no other tape store: a tape whose entries were handed over to one is
    /// refused then.
    pub reject_replicated: bool,
    /// What holds when it is committed.
    pub durability: CommitDurability,
    /// The facts, in order.
    pub facts: Vec<Fact>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fact and says at which position it stands.
    pub fn push(&mut self, fact: Fact) -> usize {
        self.facts.push(fact);
        self.facts.len() - 1
    }

    /// Adds an entry to a tape and says how the batch may refer to it.
    pub fn append(&mut self, tape: &TapeName, entry: EntryDraft) -> EntryRef {
        EntryRef::InBatch(self.push(Fact::AppendEntry { tape: tape.clone(), entry }))
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// The tapes whose entries it touches, without repeats.
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

/// What the store gave a fact when it applied it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactOutput {
    /// Nothing.
    Nothing,
    /// The id of the appended entry.
    Entry(EntryId),
    /// Whether there was room for what was to be kept.
    WithinQuota(bool),
    /// The row of the outbound message.
    Outbox(OutboxId),
    /// The epoch of the lease, or nothing when another holds it.
    Lease(Option<LeaseEpoch>),
}

/// A batch that was applied: what each fact was given, by position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitReceipt {
    /// One for each fact of the batch.
    pub outputs: Vec<FactOutput>,
}

impl CommitReceipt {
    /// The id of the entry a reference means.
    pub fn entry_id(&self, entry: EntryRef) -> Option<EntryId> {
        entry.resolve(&self.outputs)
    }
}
