//! Tapes over a store and an optional external tape store.
//!
//! # Replication
//!
//! With an external tape store, entries are committed to the store first and replicated right after; then their rows
//! are removed from the store. The store keeps the records of the tapes, and with them the order of ids. Reads merge
//! both stores, so a failed replication hides nothing; the next commit tries again.

mod chains;
mod queries;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use capstan_protocol::{Artifact, EntryId, TapeName};

use crate::fork::{has_open_call, merge_drafts};
use crate::naming::{fork_of_session, tape_name};
use crate::{
    Batch, BatchPrecondition, ChainHash, ChainHead, CommitDurability, CommitReceipt, Entry, EntryDraft, EntryGap,
    EntryKind, EntryOrder, Fact, ForkPoint, ForkState, IncrementalWindow, IntegrityProblem, MarkedBlob, NewTape, Store,
    StoreError, TapeAddress, TapeRecord, TapeSlice, TapeStore, TextSearch,
};

/// Entries that the default view reads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContextWindow {
    /// Newest anchor.
    pub anchor: Option<Entry>,
    /// Earlier messages that the anchor carries over.
    pub named_messages: Vec<Entry>,
    /// Entries after the anchor.
    pub following: Vec<Entry>,
}

impl ContextWindow {
    /// Entries in the order of a view.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.anchor.iter().chain(&self.named_messages).chain(&self.following)
    }
}

/// Reader and writer of tapes. Cheap to clone.
#[derive(Clone)]
pub struct TapeRepository {
    store: Arc<dyn Store>,
    external_store: Option<Arc<dyn TapeStore>>,
    /// First damage of the external tape store that refused a commit.
    damage: Arc<OnceLock<StoreError>>,
}

/// Number of entries that are replicated at once.
const REPLICATION_PAGE_SIZE: usize = 1024;
/// Maximum number of attempts to close a fork while it or its parent is written concurrently.
const CLOSE_CONFLICT_RETRIES: usize = 16;

impl TapeRepository {
    /// Tapes whose entries are in the store itself.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, external_store: None, damage: Arc::default() }
    }

    /// Tapes whose entries are replicated to an external tape store.
    pub fn with_external_store(store: Arc<dyn Store>, external_store: Arc<dyn TapeStore>) -> Self {
        Self { store, external_store: Some(external_store), damage: Arc::default() }
    }

    /// Closes the external tape store, if there is one.
    pub async fn close(&self) -> Result<(), StoreError> {
        match &self.external_store {
            Some(external) => external.close().await,
            None => Ok(()),
        }
    }

    /// Underlying store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Commits a batch, then replicates its entries to the external tape store.
    ///
    /// If replication fails, the entries stay in the store and readable, and the next commit tries again.
    pub async fn commit(&self, batch: Batch) -> Result<CommitReceipt, StoreError> {
        if self.external_store.is_none() {
            return self.store.commit(Batch { reject_replicated: true, ..batch }).await;
        }
        let written = batch.written_tapes();
        for tape in &written {
            self.sync_external_head(tape).await.inspect_err(|error| self.note_damage(error))?;
        }
        // Replicated entries must survive a power failure in the store too, or their ids would be assigned again.
        let receipt = self.store.commit(Batch { durability: CommitDurability::Durable, ..batch }).await?;
        for tape in &written {
            if let Err(error) = self.replicate(tape).await {
                tracing::warn!(%tape, %error, "replication failed; the next commit retries it");
            }
        }
        Ok(receipt)
    }

    /// First damage of the external tape store that refused a commit, if there is one. Commits to other tapes go on.
    pub fn damage(&self) -> Option<&StoreError> {
        self.damage.get()
    }

    fn note_damage(&self, error: &StoreError) {
        if matches!(error, StoreError::Corrupt { .. }) {
            // Only the first damage is kept.
            let _is_first = self.damage.set(error.clone());
        }
    }

    /// Creates the record of a tape that exists only in the external tape store, so that ids continue after its head.
    /// For a known tape, checks that both stores agree.
    async fn sync_external_head(&self, tape: &TapeName) -> Result<(), StoreError> {
        let known = self.store.tape(tape).await?;
        let Some(external) = &self.external_store else {
            return match known {
                Some(record) if record.replicated_up_to > EntryId(0) => {
                    Err(StoreError::StoredElsewhere { tape: tape.clone() })
                }
                _ => Ok(()),
            };
        };
        if let Some(record) = known {
            let last = external.read(tape, &TapeSlice::last()).await?.pop();
            let checked = self.check_replica_end(&record, last.map(|entry| entry.id).unwrap_or_default()).await?;
            return checked.map_err(|detail| StoreError::corrupt(format!("tape {tape}"), detail));
        }
        let Some(last) = external.read(tape, &TapeSlice::last()).await?.pop() else { return Ok(()) };
        let mut batch = Batch::new();
        batch.push(Fact::EnsureTape(NewTape { head: last.id, ..NewTape::without_session(tape.clone()) }));
        self.store.commit(batch).await.map(drop)
    }

    /// Looks for damage in both stores, and for differences between them.
    pub async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        let mut problems = self.store.verify().await?;
        let Some(external) = &self.external_store else { return Ok(problems) };
        problems.extend(external.verify().await?);
        // Records are read before entries, so entries replicated in the meantime are not reported.
        let mut records = self.store.tapes();
        while let Some(record) = records.next().await? {
            let messages = match external.read(&record.name, &TapeSlice::all()).await {
                // The store may have reported the damage itself; duplicates are dropped below.
                Err(error @ StoreError::Corrupt { .. }) => vec![error.to_string()],
                Err(error) => return Err(error),
                Ok(entries) => self.find_replica_problems(&record, &entries).await?,
            };
            for message in messages {
                let problem = IntegrityProblem { tape: Some(record.name.clone()), message };
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
        Ok(problems)
    }

    /// Newest entry of a tape and its hash; `None` if the tape is unknown.
    pub async fn chain_head(&self, tape: &TapeName) -> Result<Option<ChainHead>, StoreError> {
        let record = self.record(tape).await?;
        Ok(record.map(|record| ChainHead { tape: record.name, id: record.head, hash: record.head_hash }))
    }

    /// Checks that a head that was kept elsewhere is still part of the chain of its tape, and returns the problem.
    ///
    /// Together with [`verify`](Self::verify), which checks the chain itself, this proves that no entry up to the head
    /// was changed, removed, inserted or moved.
    pub async fn check_head(&self, head: &ChainHead) -> Result<Option<IntegrityProblem>, StoreError> {
        chains::check_head(self, head).await
    }

    /// Differences between the external tape store and the replicated entries of a tape.
    async fn find_replica_problems(&self, record: &TapeRecord, entries: &[Entry]) -> Result<Vec<String>, StoreError> {
        let ids = || entries.iter().map(|entry| entry.id);
        let last = ids().max().unwrap_or_default();
        let mut missing = record.find_gaps(ids(), EntryId(0), record.replicated_up_to.min(last));
        let gaps: Vec<String> = missing.iter().map(|gap| format!("{gap} in its tape store")).collect();
        missing.push(EntryGap { from: last.next(), to: record.head.max(last.next()) });
        let chain_break = chains::find_replica_break(self, record, entries).await?;
        let chain_break = chain_break.filter(|chain_break| !chain_break.is_among(&missing));
        let chain_break = chain_break.map(|chain_break| format!("{chain_break} in its tape store"));
        Ok(gaps.into_iter().chain(self.check_replica_end(record, last).await?.err()).chain(chain_break).collect())
    }

    /// Checks the last entry in the external tape store: it must have all replicated entries, and no entry that was
    /// never written.
    async fn check_replica_end(&self, record: &TapeRecord, last: EntryId) -> Result<Result<(), String>, StoreError> {
        let replicated = record.replicated_up_to;
        if last < replicated {
            return Ok(Err(format!(
                "its tape store has entries up to {last}, but was given entries up to {replicated}"
            )));
        }
        // Other processes may have replicated entries since the record was read, so compare with the newest record.
        let newest = if last > record.head { self.store.tape(&record.name).await? } else { None };
        let head = newest.map_or(record.head, |newest| newest.head);
        if last > head {
            return Ok(Err(format!("its tape store has entries up to {last}, but the newest one written is {head}")));
        }
        Ok(Ok(()))
    }

    /// Replicates the entries of a tape that the external tape store does not have yet.
    pub async fn replicate(&self, tape: &TapeName) -> Result<(), StoreError> {
        let Some(external) = &self.external_store else { return Ok(()) };
        let page = TapeSlice { limit: Some(REPLICATION_PAGE_SIZE), ..TapeSlice::all() };
        loop {
            // Replicated entries have been removed from the store.
            let entries = self.store.read(tape, &page).await?;
            let Some(up_to) = entries.last().map(|entry| entry.id) else { return Ok(()) };
            // Entries of other writers may not be durable yet; an empty durable commit makes them so.
            self.store.commit(Batch::new()).await?;
            external.append(tape, &entries).await?;
            // If this commit is lost, the entries are replicated again, which has no effect.
            let mut batch = Batch { durability: CommitDurability::Ordered, ..Batch::new() };
            batch.push(Fact::MarkReplicated { tape: tape.clone(), up_to });
            self.store.commit(batch).await?;
            if entries.len() < REPLICATION_PAGE_SIZE {
                return Ok(());
            }
        }
    }

    /// Replicates the entries that an earlier process left in the replication queue, as long as `is_running` returns true,
    /// and returns the number of tapes. A tape that was never replicated is left to its next commit.
    ///
    /// A tape whose replication fails is skipped.
    pub async fn replicate_pending(&self, is_running: impl Fn() -> bool) -> Result<usize, StoreError> {
        let (mut replicated, mut after) = (0, None);
        if self.external_store.is_none() {
            return Ok(replicated);
        }
        loop {
            let pending = self.store.tapes_with_entries(after.as_ref(), REPLICATION_PAGE_SIZE).await?;
            let Some(last) = pending.last().cloned() else { return Ok(replicated) };
            for tape in pending {
                if !is_running() {
                    return Ok(replicated);
                }
                let Some(record) = self.store.tape(&tape).await? else { continue };
                // Whole tapes that precede the external tape store are moved when they are next used.
                if record.replicated_up_to == EntryId(0) && record.fork.is_none() {
                    continue;
                }
                match self.replicate(&tape).await {
                    Ok(()) => replicated += 1,
                    Err(error) => tracing::warn!(%tape, %error, "cannot replicate the entries of a tape"),
                }
            }
            after = Some(last);
        }
    }

    /// Record of a tape that is known to the store or the external tape store.
    pub async fn record(&self, tape: &TapeName) -> Result<Option<TapeRecord>, StoreError> {
        if let Some(record) = self.store.tape(tape).await? {
            return Ok(Some(record));
        }
        let Some(external) = &self.external_store else { return Ok(None) };
        let last = external.read(tape, &TapeSlice::last()).await?.pop();
        Ok(last.map(|last| TapeRecord {
            name: tape.clone(),
            session: None,
            workspace: None,
            head: last.id,
            generation: 1,
            begins_after: EntryId(0),
            past_generations: Vec::new(),
            replicated_up_to: last.id,
            brought_along: last.id,
            fork: None,
            head_hash: ChainHash::START,
        }))
    }

    /// All tapes, ordered by name.
    pub async fn list(&self) -> Result<Vec<TapeRecord>, StoreError> {
        let mut records = self.store.tapes().collect().await?;
        if let Some(external) = &self.external_store {
            for tape in external.tapes().await? {
                if !records.iter().any(|record| record.name == tape) {
                    records.extend(self.record(&tape).await?);
                }
            }
            records.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(records)
    }

    /// Entries of a tape in its current generation. A fork includes the entries of its parent up to the branch point.
    pub async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        match self.record(tape).await? {
            Some(record) => self.read_with_record(record, slice).await,
            None => Ok(Vec::new()),
        }
    }

    /// Same as [`read`](Self::read), for a record that was already read.
    pub(crate) async fn read_with_record(
        &self,
        record: TapeRecord,
        slice: &TapeSlice,
    ) -> Result<Vec<Entry>, StoreError> {
        let after = slice.after.unwrap_or_default().max(record.begins_after);
        self.read_with_ancestors(record, &TapeSlice { after: Some(after), ..slice.clone() }, None).await
    }

    /// Entries of one generation of a tape.
    pub async fn read_generation(
        &self,
        tape: &TapeName,
        number: u32,
        slice: &TapeSlice,
    ) -> Result<Vec<Entry>, StoreError> {
        let Some(record) = self.record(tape).await? else { return Ok(Vec::new()) };
        let Some(past) = record.past_generations.iter().find(|past| past.number == number).cloned() else {
            return if record.generation == number { self.read(tape, slice).await } else { Ok(Vec::new()) };
        };
        let after = slice.after.unwrap_or_default().max(past.begins_after);
        let up_to = slice.up_to.map_or(past.up_to, |id| id.min(past.up_to));
        self.read_with_ancestors(record, &TapeSlice { after: Some(after), up_to: Some(up_to), ..slice.clone() }, None)
            .await
    }

    /// Entries of a tape in all of its generations.
    pub async fn read_any_generation(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        let Some(record) = self.record(tape).await? else { return Ok(Vec::new()) };
        self.read_with_ancestors(record, slice, None).await
    }

    /// Content of an artifact; `None` if it is not stored here, or was removed.
    pub async fn artifact_content(&self, artifact: &Artifact) -> Result<Option<Vec<u8>>, StoreError> {
        match &artifact.content_blob {
            Some(marked) => Ok(self.store().blob(marked).await?.map(MarkedBlob::strip_mark)),
            None => self.store().blob(&artifact.hash).await,
        }
    }

    /// Entries of a tape and its ancestors: a slice, or the matches of a search in it.
    async fn read_with_ancestors(
        &self,
        record: TapeRecord,
        slice: &TapeSlice,
        search: Option<&TextSearch>,
    ) -> Result<Vec<Entry>, StoreError> {
        // Visible rows of each tape, from the tape itself to its oldest ancestor.
        let mut chain: Vec<(TapeRecord, TapeSlice)> = Vec::new();
        let mut visible = slice.clone();
        let mut next = Some(record);
        while let Some(record) = next.take() {
            let Some(fork) = record.fork.clone() else {
                chain.push((record, visible.clone()));
                break;
            };
            let own =
                TapeSlice { after: Some(visible.after.unwrap_or_default().max(fork.position)), ..visible.clone() };
            chain.push((record, own));
            visible.up_to = Some(visible.up_to.map_or(fork.position, |id| id.min(fork.position)));
            next = self.record(&fork.parent).await?;
        }
        // Checked for the whole chain first, so that the result does not depend on where a limit is reached.
        chain.iter().try_for_each(|(record, part)| self.check_available(record, part))?;
        if slice.order == EntryOrder::OldestFirst {
            chain.reverse();
        }
        let mut entries = Vec::new();
        for (record, part) in chain {
            let limit = slice.limit.map(|limit| limit - entries.len());
            if limit == Some(0) {
                break;
            }
            let part = TapeSlice { limit, ..part };
            entries.extend(match search {
                None => self.read_rows(&record.name, &part).await?,
                Some(search) => self.search_rows(&record.name, &part, search).await?,
            });
        }
        Ok(entries)
    }

    /// Rejects a range with replicated entries if there is no external tape store.
    fn check_available(&self, record: &TapeRecord, slice: &TapeSlice) -> Result<(), StoreError> {
        let after = slice.after.unwrap_or_default();
        let is_empty = slice.up_to.is_some_and(|up_to| up_to <= after);
        if self.external_store.is_none() && !is_empty && after < record.replicated_up_to {
            return Err(StoreError::StoredElsewhere { tape: record.name.clone() });
        }
        Ok(())
    }

    /// Rows of one tape: replicated entries, and those that are not replicated yet.
    async fn read_rows(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        let local = self.store.read(tape, slice).await?;
        let Some(external) = &self.external_store else { return Ok(local) };
        let mut entries = external.read(tape, slice).await?;
        let replicated: HashSet<EntryId> = entries.iter().map(|entry| entry.id).collect();
        entries.extend(local.into_iter().filter(|entry| !replicated.contains(&entry.id)));
        match slice.order {
            EntryOrder::OldestFirst => entries.sort_by_key(|entry| entry.id),
            EntryOrder::NewestFirst => entries.sort_by_key(|entry| std::cmp::Reverse(entry.id)),
        }
        entries.truncate(slice.limit.unwrap_or(usize::MAX));
        Ok(entries)
    }

    /// Newest anchor of the current generation.
    pub async fn last_anchor(&self, tape: &TapeName) -> Result<Option<Entry>, StoreError> {
        Ok(self.read(tape, &TapeSlice::last_anchor()).await?.pop())
    }

    /// Entries that the default view reads, from the newest anchor on.
    pub async fn window(&self, tape: &TapeName) -> Result<ContextWindow, StoreError> {
        self.window_of_kinds(tape, &[]).await
    }

    /// Same as [`window`](Self::window), with only these kinds of entries after the anchor; empty means all.
    pub(crate) async fn window_of_kinds(
        &self,
        tape: &TapeName,
        kinds: &[EntryKind],
    ) -> Result<ContextWindow, StoreError> {
        let mut window = IncrementalWindow::default();
        window.refresh(self, tape, kinds).await.map(std::mem::take)
    }

    /// Tape of a session: the fork that the session [works on](crate::fork_session), or the tape named after workspace
    /// and session, which need not exist.
    ///
    /// A fork belongs to the workspace of the tape that it descends from; in another one it is not found.
    pub async fn session_tape(&self, address: &TapeAddress) -> Result<TapeName, StoreError> {
        let own_tape = tape_name(address);
        let Some(fork) = fork_of_session(&address.session) else { return Ok(own_tape) };
        match self.record(&fork).await? {
            Some(record) if record.fork.is_some() && self.is_of_workspace(&record, address).await? => Ok(fork),
            // A session that was named like this before forks had sessions keeps its tape.
            _ if self.record(&own_tape).await?.is_some() => Ok(own_tape),
            _ => Err(StoreError::TapeNotFound { tape: fork }),
        }
    }

    /// Returns true if a tape, or the tape that it descends from, belongs to the workspace or to none.
    async fn is_of_workspace(&self, record: &TapeRecord, address: &TapeAddress) -> Result<bool, StoreError> {
        let mut root = record.clone();
        while let Some(fork) = &root.fork {
            let Some(parent) = self.record(&fork.parent).await? else { break };
            root = parent;
        }
        Ok(root.workspace.is_none_or(|workspace| workspace == address.workspace))
    }

    /// Returns true if the entries of `fork` were merged into `ancestor`, directly or through forks in between.
    pub async fn is_merged_into(&self, fork: &TapeName, ancestor: &TapeName) -> Result<bool, StoreError> {
        let mut tape = fork.clone();
        loop {
            let point = self.record(&tape).await?.and_then(|record| record.fork);
            match point.filter(|point| point.state == ForkState::Merged) {
                None => return Ok(false),
                Some(point) if point.parent == *ancestor => return Ok(true),
                Some(point) => tape = point.parent,
            }
        }
    }

    /// Forks a tape at an entry, or at its head.
    pub async fn fork(&self, parent: &TapeName, fork: &TapeName, at: Option<EntryId>) -> Result<(), StoreError> {
        self.sync_external_head(parent).await?;
        let record = self.record(parent).await?.ok_or_else(|| StoreError::TapeNotFound { tape: parent.clone() })?;
        let position = at.map_or(record.head, |at| at.min(record.head));
        let mut batch = Batch::new();
        batch.push(Fact::ForkTape { fork: fork.clone(), parent: parent.clone(), position });
        self.store.commit(batch).await.map(drop)
    }

    /// Closes a fork and appends its entries to the parent with new ids. Returns the number of entries.
    ///
    /// Rejected while an event of the fork or of its parent is in flight, and while a tool call of the parent is open.
    pub async fn merge(&self, fork: &TapeName) -> Result<usize, StoreError> {
        for _ in 0..CLOSE_CONFLICT_RETRIES {
            let (record, point) = self.find_open_fork(fork).await?;
            let parent = point.parent.clone();
            let head = self.record(&parent).await?.map(|record| record.head).unwrap_or_default();
            self.check_no_event_in_flight(fork).await?;
            self.check_no_event_in_flight(&parent).await?;
            if has_open_call(&self.read_from_last_call(&parent).await?) {
                return Err(StoreError::OpenToolCall { tape: parent });
            }
            let entries = self.read_fork_entries(&record, &point).await?;
            let mut batch = Batch::new();
            batch.preconditions.push(BatchPrecondition::TapeHead { tape: parent.clone(), head });
            batch.preconditions.push(BatchPrecondition::TapeHead { tape: fork.clone(), head: record.head });
            for draft in merge_drafts(&point, &entries, batch.facts.len()) {
                batch.append(&parent, draft);
            }
            batch.push(Fact::CloseFork { fork: fork.clone(), is_merged: true });
            match self.commit(batch).await {
                Err(StoreError::HeadMoved { .. }) => {}
                result => return result.map(|_| entries.len()),
            }
        }
        Err(StoreError::HeadMoved { tape: fork.clone() })
    }

    /// Closes a fork without merging it. Its entries stay readable on the fork. Rejected while an event of the fork is
    /// in flight: its turn could not be recorded.
    pub async fn discard(&self, fork: &TapeName) -> Result<(), StoreError> {
        for _ in 0..CLOSE_CONFLICT_RETRIES {
            let (record, _) = self.find_open_fork(fork).await?;
            self.check_no_event_in_flight(fork).await?;
            let mut batch = Batch::new();
            batch.preconditions.push(BatchPrecondition::TapeHead { tape: fork.clone(), head: record.head });
            batch.push(Fact::CloseFork { fork: fork.clone(), is_merged: false });
            match self.store.commit(batch).await {
                Err(StoreError::HeadMoved { .. }) => {}
                result => return result.map(drop),
            }
        }
        Err(StoreError::HeadMoved { tape: fork.clone() })
    }

    /// Record and own entries of an open fork.
    pub async fn read_open_fork(&self, fork: &TapeName) -> Result<(ForkPoint, Vec<Entry>), StoreError> {
        let (record, point) = self.find_open_fork(fork).await?;
        let entries = self.read_fork_entries(&record, &point).await?;
        Ok((point, entries))
    }

    async fn read_fork_entries(&self, record: &TapeRecord, point: &ForkPoint) -> Result<Vec<Entry>, StoreError> {
        let own = TapeSlice::after(point.position);
        self.check_available(record, &own)?;
        self.read_rows(&record.name, &own).await
    }

    async fn find_open_fork(&self, fork: &TapeName) -> Result<(TapeRecord, ForkPoint), StoreError> {
        let record = self.record(fork).await?.ok_or_else(|| StoreError::TapeNotFound { tape: fork.clone() })?;
        match record.fork.clone() {
            Some(point) if point.state == ForkState::Open => Ok((record, point)),
            Some(_) => Err(StoreError::ForkClosed { tape: fork.clone() }),
            None => Err(StoreError::TapeNotFound { tape: fork.clone() }),
        }
    }

    async fn check_no_event_in_flight(&self, tape: &TapeName) -> Result<(), StoreError> {
        match self.store.in_flight_events(Some(tape)).next().await? {
            Some(_) => Err(StoreError::EventInFlight { tape: tape.clone() }),
            None => Ok(()),
        }
    }

    async fn read_from_last_call(&self, tape: &TapeName) -> Result<Vec<Entry>, StoreError> {
        let last_call = TapeSlice { kinds: vec![EntryKind::ToolCall], ..TapeSlice::last_anchor() };
        let Some(call) = self.read(tape, &last_call).await?.pop() else { return Ok(Vec::new()) };
        self.read(tape, &TapeSlice::after(EntryId(call.id.0.saturating_sub(1)))).await
    }

    /// Starts a new generation of a tape with `session/start`. Ids continue, and the old generation stays readable.
    pub async fn reset(&self, tape: &TapeName, archive: bool) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        self.sync_external_head(tape).await?;
        batch.push(Fact::ResetTape { tape: tape.clone(), archive });
        for draft in EntryDraft::session_start() {
            batch.append(tape, draft);
        }
        self.commit(batch).await.map(drop)
    }
}
