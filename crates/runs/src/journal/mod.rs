//! What a turn writes: collected, and committed in as few batches as its promises allow.

mod detach_on_drop;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::{Clock, EntryId, EventKey, RunId, TapeName};
use capstan_tape::{
    Batch, BatchPrecondition, CommitDurability, ContextWindow, EntryDraft, EntryKind, EntryRef, Fact, FactOutput,
    Fence, IncrementalWindow, RunStatus, StoreError, TapeRepository,
};
use tokio_util::task::TaskTracker;

use self::detach_on_drop::DetachOnDrop;

/// The journal of one turn.
///
/// Entries wait here until something must be on record before the turn goes on (a model call, a tool call) or the turn
/// ends; then all of them are one commit, under the turn's lease. What waits is only let go of when it is written.
pub struct Journal {
    tapes: TapeRepository,
    tape: TapeName,
    fence: Fence,
    clock: Clock,
    /// Where commits go on that nobody waits for any more.
    tasks: TaskTracker,
    pending: Mutex<PendingFacts>,
    /// Commits follow one another in the order of what they hold. This lock is their queue: it is held over the wait for
    /// the disk on purpose, and nothing else is done under it but to look at the tape between two of them. It holds what
    /// was seen there.
    commit_lock: tokio::sync::Mutex<IncrementalWindow>,
}

#[derive(Default)]
struct PendingFacts {
    facts: Vec<Fact>,
    /// Which of the facts are entries somebody wants to know the id of, by position.
    tracked_entries: Vec<(usize, EntryTicket)>,
    /// Which of the facts tell what a tool did, by position, and its name.
    tool_effects: Vec<(usize, String)>,
    /// The tools whose doing is told by what the disk may not have yet.
    unsynced_tool_effects: Vec<String>,
    entry_ids: HashMap<EntryTicket, EntryId>,
    ticket_count: u64,
    /// How many entries the turn's run has written.
    entry_count: u64,
    /// How many of the facts a commit is writing just now.
    committing_count: usize,
    /// The runner of the turn's run has started.
    is_started: bool,
    /// Something is written that the disk may not have yet.
    is_unsynced: bool,
}

/// An entry that may not have its id yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EntryTicket(u64);

impl Journal {
    /// A journal of this tape. A commit that nobody waits for any more is a task of the host, which does not end before it.
    pub fn new(tapes: TapeRepository, tape: TapeName, fence: Fence, clock: Clock, tasks: TaskTracker) -> Self {
        Self { tapes, tape, fence, clock, tasks, pending: Mutex::default(), commit_lock: tokio::sync::Mutex::default() }
    }

    /// The tape of the session.
    pub fn tape(&self) -> &TapeName {
        &self.tape
    }

    /// The tape of the session, under whose lease it is written: of a fork, the one that it and its parents branched off.
    pub(crate) fn session_tape(&self) -> &TapeName {
        &self.fence.tape
    }

    /// Adds an entry of a run to what waits.
    pub(crate) fn append(&self, run: &RunId, entry: EntryDraft) {
        let mut pending = self.lock();
        let fact = self.append_fact(&mut pending, run, entry);
        pending.facts.push(fact);
    }

    /// The journal of a fork of this tape. It is written under the same lease.
    pub(crate) fn for_fork(&self, fork: TapeName) -> Self {
        Self::new(self.tapes.clone(), fork, self.fence.clone(), self.clock.clone(), self.tasks.clone())
    }

    /// Adds entries of a run and the facts they rest on to what waits, so that no commit comes between them. `did` is the
    /// tool whose doing the last of them tells: until it is on disk nobody else can tell.
    pub(crate) fn append_atomic(&self, run: &RunId, facts: Vec<Fact>, entries: Vec<EntryDraft>, did: Option<String>) {
        let mut pending = self.lock();
        let entries: Vec<Fact> = entries.into_iter().map(|entry| self.append_fact(&mut pending, run, entry)).collect();
        pending.facts.extend(facts.into_iter().chain(entries));
        let last = pending.facts.len().saturating_sub(1);
        pending.tool_effects.extend(did.map(|tool| (last, tool)));
    }

    /// The tools that did something that is not on disk yet.
    pub fn unrecorded_tools(&self) -> Vec<String> {
        let pending = self.lock();
        let mut tools: Vec<String> = Vec::new();
        for tool in pending.unsynced_tool_effects.iter().chain(pending.tool_effects.iter().map(|(_, tool)| tool)) {
            if !tools.contains(tool) {
                tools.push(tool.clone());
            }
        }
        tools
    }

    /// An entry of a run, as a fact that is committed with the end of the turn.
    pub fn final_entry(&self, run: &RunId, entry: EntryDraft) -> Fact {
        self.append_fact(&mut self.lock(), run, entry)
    }

    /// The next entry of a run, which somebody else makes a fact.
    pub(crate) fn next_entry(&self, run: &RunId, entry: EntryDraft) -> EntryDraft {
        self.stamp_entry(&mut self.lock(), run, entry)
    }

    fn append_fact(&self, pending: &mut PendingFacts, run: &RunId, entry: EntryDraft) -> Fact {
        Fact::AppendEntry { tape: self.tape.clone(), entry: self.stamp_entry(pending, run, entry) }
    }

    fn stamp_entry(&self, pending: &mut PendingFacts, run: &RunId, entry: EntryDraft) -> EntryDraft {
        pending.entry_count += 1;
        let entry = entry.with_run_id(run).with_sequence(pending.entry_count);
        // One that no store takes would keep all that waits from being committed.
        EntryDraft { date: Some(self.clock.now().into()), ..entry }.limit_nesting()
    }

    /// The id of an entry, once it is committed.
    pub(crate) fn entry_id(&self, ticket: EntryTicket) -> Option<EntryId> {
        self.lock().entry_ids.get(&ticket).copied()
    }

    /// Adds the message of events that a run takes in: from then on it stands on the tape, and they are known to be
    /// that run's.
    pub(crate) fn append_ingested(&self, run: &RunId, message: EntryDraft, events: &[EventKey]) -> EntryTicket {
        let mut pending = self.lock();
        let fact = self.append_fact(&mut pending, run, message);
        pending.ticket_count += 1;
        let ticket = EntryTicket(pending.ticket_count);
        let position = pending.facts.len();
        pending.facts.push(fact);
        pending.tracked_entries.push((position, ticket));
        let message = EntryRef::InBatch(position);
        pending.facts.extend(events.iter().map(|key| Fact::IngestEvent {
            key: key.clone(),
            run_id: run.clone(),
            message,
        }));
        ticket
    }

    /// Shows what a view of the tape that wants these kinds reads, with what waits as if it were committed.
    pub(crate) async fn view<T>(
        self: &Arc<Self>,
        kinds: &[EntryKind],
        show: impl FnOnce(&ContextWindow) -> T,
    ) -> Result<T, StoreError> {
        if self.pending_entries().iter().any(|entry| entry.kind == EntryKind::Anchor) {
            self.flush_ordered().await?;
        }
        let mut seen = self.commit_lock.lock().await;
        // Whatever comes between, what is left there is what the tape had.
        let mut grown = std::mem::take(&mut *seen);
        let window = grown.refresh(&self.tapes, &self.tape, kinds).await?;
        let committed = window.following.len();
        let head = window.entries().map(|entry| entry.id).max().unwrap_or_default();
        let ids = std::iter::successors(Some(head.next()), |id| Some(id.next()));
        let now = self.clock.now();
        let waiting = self.pending_entries().into_iter().zip(ids);
        window.following.extend(waiting.map(|(draft, id)| draft.into_entry(id, now, &[])));
        let shown = show(window);
        window.following.truncate(committed);
        *seen = grown;
        Ok(shown)
    }

    fn pending_entries(&self) -> Vec<EntryDraft> {
        let of_tape = |fact: &Fact| match fact {
            Fact::AppendEntry { tape, entry } if *tape == self.tape => Some(entry.clone()),
            _ => None,
        };
        self.lock().facts.iter().filter_map(of_tape).collect()
    }

    /// Whether something waits that changes what is kept in a space.
    pub(crate) fn has_pending_change(&self, space: &str) -> bool {
        self.lock()
            .facts
            .iter()
            .any(|fact| matches!(fact, Fact::UpdateWithinQuota(change) if change.namespace == space))
    }

    /// Adds a fact to what waits.
    pub(crate) fn push(&self, fact: Fact) {
        self.lock().facts.push(fact);
    }

    /// The runner of a run starts. A run that is not on record yet will be so as running, and costs no commit of its own.
    pub(crate) fn start_run(&self, run_id: &RunId) {
        let mut pending = self.lock();
        if std::mem::replace(&mut pending.is_started, true) {
            return;
        }
        let is_it = |fact: &&mut Fact| matches!(fact, Fact::OpenRun(run) if run.run_id == *run_id);
        let committing = pending.committing_count;
        match pending.facts.iter_mut().skip(committing).find(is_it) {
            Some(Fact::OpenRun(run)) => run.status = RunStatus::Running,
            _ => pending.facts.push(Fact::StartRun { run_id: run_id.clone() }),
        }
    }

    /// Adds facts to what waits.
    pub(crate) fn extend(&self, facts: Vec<Fact>) {
        self.lock().facts.extend(facts);
    }

    /// Commits all that waits. A caller that goes away, as a cancelled run does, leaves the commit to end by itself.
    pub(crate) async fn flush(self: &Arc<Self>) -> Result<(), StoreError> {
        let has_all = |pending: &PendingFacts| pending.facts.is_empty() && !pending.is_unsynced;
        if has_all(&self.lock()) {
            return Ok(());
        }
        self.flush_with(Vec::new()).await.map(drop)
    }

    /// Writes all that waits, without waiting for the disk: for what has no effect that a power cut could not undo.
    pub(crate) async fn flush_ordered(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.lock().facts.is_empty() {
            return Ok(());
        }
        self.flush_with_durability(CommitDurability::Ordered, Vec::new(), Vec::new()).await.map(drop)
    }

    /// Commits all that waits and these facts after it, and gives what these were assigned. They are no part of what
    /// waits: a commit that somebody has left to end by itself cannot take them along.
    pub async fn flush_with(self: &Arc<Self>, last: Vec<Fact>) -> Result<Vec<FactOutput>, StoreError> {
        self.flush_with_durability(CommitDurability::Durable, Vec::new(), last).await
    }

    /// Commits the same if all of this holds. Otherwise nothing is, and what waits goes on waiting.
    pub(crate) async fn flush_with_preconditions(
        self: &Arc<Self>,
        expect: Vec<BatchPrecondition>,
        last: Vec<Fact>,
    ) -> Result<Vec<FactOutput>, StoreError> {
        self.flush_with_durability(CommitDurability::Durable, expect, last).await
    }

    async fn flush_with_durability(
        self: &Arc<Self>,
        promise: CommitDurability,
        expect: Vec<BatchPrecondition>,
        last: Vec<Fact>,
    ) -> Result<Vec<FactOutput>, StoreError> {
        let (journal, count) = (Arc::clone(self), last.len());
        let commit = DetachOnDrop::new(&self.tasks, async move { journal.commit(promise, expect, last).await });
        let mut assigned = commit.await?;
        Ok(assigned.split_off(assigned.len().saturating_sub(count)))
    }

    async fn commit(
        &self,
        promise: CommitDurability,
        expect: Vec<BatchPrecondition>,
        last: Vec<Fact>,
    ) -> Result<Vec<FactOutput>, StoreError> {
        let _turn = self.commit_lock.lock().await;
        let (mut facts, count, is_unsynced) = {
            let mut pending = self.lock();
            pending.committing_count = pending.facts.len();
            (pending.facts.clone(), pending.committing_count, pending.is_unsynced)
        };
        facts.extend(last);
        if facts.is_empty() && !is_unsynced {
            return Ok(Vec::new());
        }
        let batch = Batch {
            fence: Some(self.fence.clone()),
            preconditions: expect,
            durability: promise,
            facts,
            ..Batch::new()
        };
        let committed = self.tapes.commit(batch).await;
        let mut pending = self.lock();
        pending.committing_count = 0;
        let committed = committed?;
        pending.is_unsynced = promise == CommitDurability::Ordered;
        pending.facts.drain(..count);
        pending.facts.iter_mut().for_each(|fact| shift_position(fact, count));
        let (done, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut pending.tracked_entries).into_iter().partition(|(position, _)| *position < count);
        pending.tracked_entries = waiting.into_iter().map(|(position, ticket)| (position - count, ticket)).collect();
        let (written, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut pending.tool_effects).into_iter().partition(|(position, _)| *position < count);
        pending.tool_effects = waiting.into_iter().map(|(position, tool)| (position - count, tool)).collect();
        match promise {
            CommitDurability::Durable => pending.unsynced_tool_effects.clear(),
            CommitDurability::Ordered => {
                pending.unsynced_tool_effects.extend(written.into_iter().map(|(_, tool)| tool));
            }
        }
        for (position, ticket) in done {
            if let Some(id) = committed.entry_id(EntryRef::InBatch(position)) {
                pending.entry_ids.insert(ticket, id);
            }
        }
        drop(pending);
        Ok(committed.outputs)
    }

    fn lock(&self) -> MutexGuard<'_, PendingFacts> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Facts before this one were committed: what it says about positions in its batch moves with it.
fn shift_position(fact: &mut Fact, count: usize) {
    if let Fact::IngestEvent { message: EntryRef::InBatch(position), .. } = fact {
        *position = position.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests;
