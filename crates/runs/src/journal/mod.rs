//! Journal of a turn: collects its entries and facts, and commits them in as few batches as durability allows.

mod detach_on_drop;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::{Clock, EntryId, EventKey, RunId, TapeName};
use capstan_tape::{
    Batch, BatchPrecondition, CommitDurability, ContextWindow, EntryDraft, EntryKind, EntryRef, Fact, FactOutput,
    Fence, IncrementalWindow, RunStatus, StoreError, TapeRepository, meta_keys,
};
use tokio_util::task::TaskTracker;

use self::detach_on_drop::DetachOnDrop;

/// The journal of one turn.
///
/// Entries are pending until something must be recorded before the turn continues (a model call, a tool call) or the
/// turn ends; then all are committed together, under the turn's lease. Pending facts are removed only after they are
/// written.
pub struct Journal {
    tapes: TapeRepository,
    tape: TapeName,
    fence: Fence,
    clock: Clock,
    /// Tracks detached commits whose caller has gone.
    tasks: TaskTracker,
    pending: Mutex<PendingFacts>,
    /// Window of the tape as of the last [`view`](Self::view). Its lock serializes commits in the order of their facts:
    /// deliberately held across disk I/O, and taken by `view` to refresh the window between two commits.
    cached_window: tokio::sync::Mutex<IncrementalWindow>,
}

#[derive(Default)]
struct PendingFacts {
    facts: Vec<Fact>,
    /// Positions of entries whose id a caller needs.
    tracked_entries: Vec<(usize, PendingEntry)>,
    /// Positions of entries that record the effect of a tool, with the name of the tool.
    tool_effects: Vec<(usize, String)>,
    /// Tools whose effects are recorded but possibly not yet durable.
    unsynced_tool_effects: Vec<String>,
    entry_ids: HashMap<PendingEntry, EntryId>,
    tracked_count: u64,
    /// Sequence number of the last entry of the turn's run.
    last_sequence: u64,
    /// Number of leading facts that a commit is writing.
    committing_count: usize,
    /// The runner of the turn's run has started.
    is_started: bool,
    /// Some written facts may not be durable yet.
    is_unsynced: bool,
    /// Conditions of the first commit, which opens the run.
    first_commit_preconditions: Vec<BatchPrecondition>,
}

/// Handle for an entry whose id is assigned by its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PendingEntry(u64);

impl Journal {
    /// Journal of a tape. Detached commits are spawned on `tasks`, which the host waits for before it ends.
    pub fn new(tapes: TapeRepository, tape: TapeName, fence: Fence, clock: Clock, tasks: TaskTracker) -> Self {
        Self {
            tapes,
            tape,
            fence,
            clock,
            tasks,
            pending: Mutex::default(),
            cached_window: tokio::sync::Mutex::default(),
        }
    }

    /// Makes the first commit of the turn fail unless `owner` owns these events: another process may have adopted one of
    /// them, and an event is served by one process.
    pub fn require_ownership(&self, events: impl IntoIterator<Item = EventKey>, owner: &str) {
        let is_owner = |key| BatchPrecondition::EventOwner { key, owner: owner.to_owned() };
        self.lock().first_commit_preconditions = events.into_iter().map(is_owner).collect();
    }

    /// The tape that this journal writes to.
    pub fn tape(&self) -> &TapeName {
        &self.tape
    }

    /// The tape of the session, under whose lease this journal writes. For a fork, the tape at the root of its
    /// ancestors.
    pub(crate) fn session_tape(&self) -> &TapeName {
        &self.fence.tape
    }

    /// Adds an entry of a run to the pending facts.
    pub(crate) fn append(&self, run: &RunId, entry: EntryDraft) {
        let mut pending = self.lock();
        let fact = self.append_fact(&mut pending, run, entry);
        pending.facts.push(fact);
    }

    /// The journal of a fork of this tape, under the same lease.
    pub(crate) fn for_fork(&self, fork: TapeName) -> Self {
        Self::new(self.tapes.clone(), fork, self.fence.clone(), self.clock.clone(), self.tasks.clone())
    }

    /// Adds facts and the entries of a run that depend on them; one commit writes all. `effectful_tool` is the tool
    /// whose effect the last entry records; [`tools_with_undurable_effects`](Self::tools_with_undurable_effects) reports
    /// it until the entry is durable.
    pub(crate) fn append_atomic(
        &self,
        run: &RunId,
        facts: Vec<Fact>,
        entries: Vec<EntryDraft>,
        effectful_tool: Option<String>,
    ) {
        let mut pending = self.lock();
        let entries: Vec<Fact> = entries.into_iter().map(|entry| self.append_fact(&mut pending, run, entry)).collect();
        pending.facts.extend(facts.into_iter().chain(entries));
        let last = pending.facts.len().saturating_sub(1);
        pending.tool_effects.extend(effectful_tool.map(|tool| (last, tool)));
    }

    /// Tools with effects whose record is pending, or written but possibly not durable yet.
    pub fn tools_with_undurable_effects(&self) -> Vec<String> {
        let pending = self.lock();
        let mut tools: Vec<String> = Vec::new();
        for tool in pending.unsynced_tool_effects.iter().chain(pending.tool_effects.iter().map(|(_, tool)| tool)) {
            if !tools.contains(tool) {
                tools.push(tool.clone());
            }
        }
        tools
    }

    /// Numbers and stamps an entry of a run without adding it, and returns the fact that appends it.
    pub fn stamped_entry_fact(&self, run: &RunId, entry: EntryDraft) -> Fact {
        self.append_fact(&mut self.lock(), run, entry)
    }

    /// Numbers and stamps an entry of a run without adding it, for a fact that the caller builds.
    pub(crate) fn stamped_entry(&self, run: &RunId, entry: EntryDraft) -> EntryDraft {
        self.stamp_entry(&mut self.lock(), run, entry)
    }

    fn append_fact(&self, pending: &mut PendingFacts, run: &RunId, entry: EntryDraft) -> Fact {
        Fact::AppendEntry { tape: self.tape.clone(), entry: self.stamp_entry(pending, run, entry) }
    }

    fn stamp_entry(&self, pending: &mut PendingFacts, run: &RunId, entry: EntryDraft) -> EntryDraft {
        pending.last_sequence += 1;
        let entry = entry.with_run_id(run).with_sequence(pending.last_sequence);
        // An entry that every store rejects would block the commit of all pending facts.
        EntryDraft { date: Some(self.clock.now().into()), ..entry }.limit_nesting()
    }

    /// The id of an entry, once it is committed.
    pub(crate) fn entry_id(&self, entry: PendingEntry) -> Option<EntryId> {
        self.lock().entry_ids.get(&entry).copied()
    }

    /// Adds the message of events that a run ingests. It is recorded on the tape, and the events are recorded as
    /// ingested by the run.
    pub(crate) fn append_ingested(&self, run: &RunId, message: EntryDraft, events: &[EventKey]) -> PendingEntry {
        let message = match events {
            [] => message,
            events => message.with_meta(meta_keys::EVENTS, serde_json::json!(events)),
        };
        let mut pending = self.lock();
        let fact = self.append_fact(&mut pending, run, message);
        pending.tracked_count += 1;
        let entry = PendingEntry(pending.tracked_count);
        let position = pending.facts.len();
        pending.facts.push(fact);
        pending.tracked_entries.push((position, entry));
        let message = EntryRef::InBatch(position);
        pending.facts.extend(events.iter().map(|key| Fact::IngestEvent {
            key: key.clone(),
            run_id: run.clone(),
            message,
        }));
        entry
    }

    /// Calls `read` with the context window of these kinds, with the pending entries as if they were committed.
    pub(crate) async fn view<T>(
        self: &Arc<Self>,
        kinds: &[EntryKind],
        read: impl FnOnce(&ContextWindow) -> T,
    ) -> Result<T, StoreError> {
        if self.pending_entries().iter().any(|entry| entry.kind == EntryKind::Anchor) {
            self.flush_ordered().await?;
        }
        let mut cached = self.cached_window.lock().await;
        // If this is dropped or fails midway, an empty window stays behind, and the next call reads the tape again.
        let mut current = std::mem::take(&mut *cached);
        let window = current.refresh(&self.tapes, &self.tape, kinds).await?;
        let committed_count = window.following.len();
        let head = window.entries().map(|entry| entry.id).max().unwrap_or_default();
        let ids = std::iter::successors(Some(head.next()), |id| Some(id.next()));
        let now = self.clock.now();
        let pending = self.pending_entries().into_iter().zip(ids);
        window.following.extend(pending.map(|(draft, id)| draft.into_entry(id, now, &[])));
        let output = read(window);
        window.following.truncate(committed_count);
        *cached = current;
        Ok(output)
    }

    fn pending_entries(&self) -> Vec<EntryDraft> {
        let own_entry = |fact: &Fact| match fact {
            Fact::AppendEntry { tape, entry } if *tape == self.tape => Some(entry.clone()),
            _ => None,
        };
        self.lock().facts.iter().filter_map(own_entry).collect()
    }

    /// Returns true if a pending fact changes this namespace.
    pub(crate) fn has_pending_change(&self, namespace: &str) -> bool {
        self.lock()
            .facts
            .iter()
            .any(|fact| matches!(fact, Fact::UpdateWithinQuota(change) if change.namespace == namespace))
    }

    /// Adds a pending fact.
    pub(crate) fn push(&self, fact: Fact) {
        self.lock().facts.push(fact);
    }

    /// Marks a run as running. If its record is still pending it is changed in place, which needs no commit of its own.
    pub(crate) fn start_run(&self, run_id: &RunId) {
        let mut pending = self.lock();
        if std::mem::replace(&mut pending.is_started, true) {
            return;
        }
        let is_record = |fact: &&mut Fact| matches!(fact, Fact::OpenRun(run) if run.run_id == *run_id);
        let committing = pending.committing_count;
        match pending.facts.iter_mut().skip(committing).find(is_record) {
            Some(Fact::OpenRun(run)) => run.status = RunStatus::Running,
            _ => pending.facts.push(Fact::StartRun { run_id: run_id.clone() }),
        }
    }

    /// Adds pending facts.
    pub(crate) fn extend(&self, facts: Vec<Fact>) {
        self.lock().facts.extend(facts);
    }

    /// Commits all pending facts, durably.
    pub(crate) async fn flush(self: &Arc<Self>) -> Result<(), StoreError> {
        let is_synced = |pending: &PendingFacts| pending.facts.is_empty() && !pending.is_unsynced;
        if is_synced(&self.lock()) {
            return Ok(());
        }
        self.flush_with(CommitDurability::Durable, Vec::new(), Vec::new()).await.map(drop)
    }

    /// Writes all pending facts without waiting for the disk. Only for facts that may be lost in a power failure, because
    /// nothing outside the store depends on them.
    pub(crate) async fn flush_ordered(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.lock().facts.is_empty() {
            return Ok(());
        }
        self.flush_with(CommitDurability::Ordered, Vec::new(), Vec::new()).await.map(drop)
    }

    /// Commits all pending facts and then `final_facts`, and returns the outputs of the latter. They do not become
    /// pending facts, so that a detached commit cannot include them.
    ///
    /// If a precondition does not hold, nothing is committed, and the pending facts stay pending. If the caller is
    /// dropped, as a cancelled run is, the commit completes detached.
    pub async fn flush_with(
        self: &Arc<Self>,
        durability: CommitDurability,
        preconditions: Vec<BatchPrecondition>,
        final_facts: Vec<Fact>,
    ) -> Result<Vec<FactOutput>, StoreError> {
        let (journal, final_count) = (Arc::clone(self), final_facts.len());
        let commit =
            DetachOnDrop::new(&self.tasks, async move { journal.commit(durability, preconditions, final_facts).await });
        let mut outputs = commit.await?;
        Ok(outputs.split_off(outputs.len().saturating_sub(final_count)))
    }

    async fn commit(
        &self,
        durability: CommitDurability,
        mut preconditions: Vec<BatchPrecondition>,
        final_facts: Vec<Fact>,
    ) -> Result<Vec<FactOutput>, StoreError> {
        let _serialized = self.cached_window.lock().await;
        let (mut facts, count, is_unsynced) = {
            let mut pending = self.lock();
            pending.committing_count = pending.facts.len();
            preconditions.extend(pending.first_commit_preconditions.iter().cloned());
            (pending.facts.clone(), pending.committing_count, pending.is_unsynced)
        };
        facts.extend(final_facts);
        if facts.is_empty() && !is_unsynced {
            return Ok(Vec::new());
        }
        let batch = Batch { fence: Some(self.fence.clone()), preconditions, durability, facts, ..Batch::new() };
        let committed = self.tapes.commit(batch).await;
        let mut pending = self.lock();
        pending.committing_count = 0;
        let committed = committed?;
        pending.first_commit_preconditions.clear();
        pending.is_unsynced = durability == CommitDurability::Ordered;
        pending.facts.drain(..count);
        pending.facts.iter_mut().for_each(|fact| shift_position(fact, count));
        let (tracked, still_pending): (Vec<_>, Vec<_>) =
            std::mem::take(&mut pending.tracked_entries).into_iter().partition(|(position, _)| *position < count);
        pending.tracked_entries =
            still_pending.into_iter().map(|(position, entry)| (position - count, entry)).collect();
        let (written_effects, still_pending): (Vec<_>, Vec<_>) =
            std::mem::take(&mut pending.tool_effects).into_iter().partition(|(position, _)| *position < count);
        pending.tool_effects = still_pending.into_iter().map(|(position, tool)| (position - count, tool)).collect();
        match durability {
            CommitDurability::Durable => pending.unsynced_tool_effects.clear(),
            CommitDurability::Ordered => {
                pending.unsynced_tool_effects.extend(written_effects.into_iter().map(|(_, tool)| tool));
            }
        }
        for (position, entry) in tracked {
            if let Some(id) = committed.entry_id(EntryRef::InBatch(position)) {
                pending.entry_ids.insert(entry, id);
            }
        }
        drop(pending);
        Ok(committed.outputs)
    }

    fn lock(&self) -> MutexGuard<'_, PendingFacts> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adjusts the batch positions in a fact after the `count` facts before it were committed.
fn shift_position(fact: &mut Fact, count: usize) {
    if let Fact::IngestEvent { message: EntryRef::InBatch(position), .. } = fact {
        *position = position.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests;
