//! Tapes over a store and, where a plugin provides one, another place for their entries.

mod queries;

use std::collections::HashSet;
use std::sync::Arc;

use capstan_protocol::{EntryId, TapeName};

use crate::fork::{has_open_call, merge_drafts};
use crate::{
    Batch, BatchPrecondition, CommitDurability, CommitReceipt, Entry, EntryDraft, EntryKind, EntryOrder, Fact,
    ForkState, IncrementalWindow, IntegrityProblem, NewTape, Store, StoreError, TapeRecord, TapeSlice, TapeStore,
    TextSearch,
};

/// What the default view reads of a tape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContextWindow {
    /// The newest anchor.
    pub anchor: Option<Entry>,
    /// The messages it names, which were taken in before it.
    pub named_messages: Vec<Entry>,
    /// Everything after it.
    pub following: Vec<Entry>,
}

impl ContextWindow {
    /// The entries in the order a view shows them.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.anchor.iter().chain(&self.named_messages).chain(&self.following)
    }
}

/// Reads and writes tapes. Cheap to clone.
#[derive(Clone)]
pub struct TapeRepository {
    store: Arc<dyn Store>,
    external_store: Option<Arc<dyn TapeStore>>,
}

/// Number of entries that are replicated at once.
const REPLICATION_PAGE_SIZE: usize = 1024;
/// How often a write that lost a race is tried again.
const MERGE_CONFLICT_RETRIES: usize = 16;

impl TapeRepository {
    /// Tapes whose entries stand in the store itself.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, external_store: None }
    }

    /// Tapes whose entries are kept by another tape store.
    pub fn with_external_store(store: Arc<dyn Store>, tape_store: Arc<dyn TapeStore>) -> Self {
        Self { store, external_store: Some(tape_store) }
    }

    /// Ends the scope in which the tapes are used: another tape store is told to close.
    pub async fn close(&self) -> Result<(), StoreError> {
        match &self.external_store {
            Some(elsewhere) => elsewhere.close().await,
            None => Ok(()),
        }
    }

    /// The store beneath.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Commits a batch, then hands its entries over where another tape store keeps them.
    ///
    /// When the other store fails the entries stay where they are, reads still see them, and the next commit tries
    /// again: nothing is lost and nobody has to wait.
    pub async fn commit(&self, batch: Batch) -> Result<CommitReceipt, StoreError> {
        if self.external_store.is_none() {
            return self.store.commit(Batch { reject_replicated: true, ..batch }).await;
        }
        let touched = batch.written_tapes();
        for tape in &touched {
            self.sync_external_head(tape).await?;
        }
        // What another store has must not be missing here after a power cut: its ids would be given again.
        let committed = self.store.commit(Batch { durability: CommitDurability::Durable, ..batch }).await?;
        for tape in &touched {
            if let Err(error) = self.replicate(tape).await {
                tracing::warn!(%tape, %error, "entries wait to be handed over to the tape store");
            }
        }
        Ok(committed)
    }

    /// Makes sure that the store knows where the ids of a tape stand that was begun elsewhere.
    async fn sync_external_head(&self, tape: &TapeName) -> Result<(), StoreError> {
        let known = self.store.tape(tape).await?;
        let Some(elsewhere) = &self.external_store else {
            return match known {
                Some(record) if record.handed_over > EntryId(0) => {
                    Err(StoreError::StoredElsewhere { tape: tape.clone() })
                }
                _ => Ok(()),
            };
        };
        if let Some(record) = known {
            let last = elsewhere.read(tape, &TapeSlice::last()).await?.pop();
            let agreed = self.check_replica_end(&record, last.map(|entry| entry.id).unwrap_or_default()).await?;
            return agreed.map_err(|detail| StoreError::corrupt(format!("tape {tape}"), detail));
        }
        let Some(last) = elsewhere.read(tape, &TapeSlice::last()).await?.pop() else { return Ok(()) };
        let mut batch = Batch::new();
        batch.push(Fact::EnsureTape(NewTape { head: last.id, ..NewTape::with_name(tape.clone()) }));
        self.store.commit(batch).await.map(drop)
    }

    /// Looks for damage: in the store, in the other tape store, and between the two.
    pub async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        let mut problems = self.store.verify().await?;
        let Some(elsewhere) = &self.external_store else { return Ok(problems) };
        problems.extend(elsewhere.verify().await?);
        // Read before the entries: what is handed over meanwhile is there too, and no matter.
        let mut records = self.store.tapes();
        while let Some(record) = records.next().await? {
            let messages = match elsewhere.read(&record.name, &TapeSlice::all()).await {
                // Where it has told of it itself, once is enough.
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

    /// In what another tape store differs from what it was given of a tape.
    async fn find_replica_problems(&self, record: &TapeRecord, entries: &[Entry]) -> Result<Vec<String>, StoreError> {
        let ids = || entries.iter().map(|entry| entry.id);
        let last = ids().max().unwrap_or_default();
        let gaps = record.find_gaps(ids(), EntryId(0), record.handed_over.min(last));
        let gaps = gaps.iter().map(|gap| format!("{gap} in its tape store"));
        Ok(gaps.chain(self.check_replica_end(record, last).await?.err()).collect())
    }

    /// Whether another tape store ends where it should: with all that was handed over, and with nothing that was never
    /// written here.
    async fn check_replica_end(&self, record: &TapeRecord, last: EntryId) -> Result<Result<(), String>, StoreError> {
        let given = record.handed_over;
        if last < given {
            return Ok(Err(format!("its tape store has entries up to {last}, but was given entries up to {given}")));
        }
        // Others go on writing: what they handed over since the record was read stands in a newer one.
        let newest = if last > record.head { self.store.tape(&record.name).await? } else { None };
        let head = newest.map_or(record.head, |newest| newest.head);
        if last > head {
            return Ok(Err(format!("its tape store has entries up to {last}, but the newest one written is {head}")));
        }
        Ok(Ok(()))
    }

    /// Hands over the entries of a tape that wait for another tape store; where there is none, nothing waits.
    pub async fn replicate(&self, tape: &TapeName) -> Result<(), StoreError> {
        let Some(elsewhere) = &self.external_store else { return Ok(()) };
        let next = TapeSlice { limit: Some(REPLICATION_PAGE_SIZE), ..TapeSlice::all() };
        loop {
            // Entries that were replicated are gone from the store.
            let entries = self.store.read(tape, &next).await?;
            let Some(up_to) = entries.last().map(|entry| entry.id) else { return Ok(()) };
            // Others write to the tape too, and what they wrote a moment ago may not be durable.
            self.store.commit(Batch::new()).await?;
            elsewhere.append(tape, &entries).await?;
            // If this commit is lost, the entries are replicated again, which changes nothing.
            let mut batch = Batch { durability: CommitDurability::Ordered, ..Batch::new() };
            batch.push(Fact::MarkReplicated { tape: tape.clone(), up_to });
            self.store.commit(batch).await?;
            if entries.len() < REPLICATION_PAGE_SIZE {
                return Ok(());
            }
        }
    }

    /// A tape, if it is known anywhere.
    pub async fn record(&self, tape: &TapeName) -> Result<Option<TapeRecord>, StoreError> {
        if let Some(record) = self.store.tape(tape).await? {
            return Ok(Some(record));
        }
        let Some(elsewhere) = &self.external_store else { return Ok(None) };
        let last = elsewhere.read(tape, &TapeSlice::last()).await?.pop();
        Ok(last.map(|last| TapeRecord {
            name: tape.clone(),
            session: None,
            workspace: None,
            head: last.id,
            generation: 1,
            begins_after: EntryId(0),
            past: Vec::new(),
            handed_over: last.id,
            brought_along: last.id,
            fork: None,
        }))
    }

    /// Every tape, by name.
    pub async fn list(&self) -> Result<Vec<TapeRecord>, StoreError> {
        let mut records = self.store.tapes().collect().await?;
        if let Some(elsewhere) = &self.external_store {
            for tape in elsewhere.tapes().await? {
                if !records.iter().any(|record| record.name == tape) {
                    records.extend(self.record(&tape).await?);
                }
            }
            records.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(records)
    }

    /// Entries of a tape in its present generation; a fork shows its parent's entries up to where it branched off.
    pub async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        match self.record(tape).await? {
            Some(record) => self.read_with_record(record, slice).await,
            None => Ok(Vec::new()),
        }
    }

    /// The same of a tape whose record is at hand.
    pub(crate) async fn read_with_record(
        &self,
        record: TapeRecord,
        slice: &TapeSlice,
    ) -> Result<Vec<Entry>, StoreError> {
        let after = slice.after.unwrap_or_default().max(record.begins_after);
        self.read_with_ancestors(record, &TapeSlice { after: Some(after), ..slice.clone() }, None).await
    }

    /// Entries of a generation that a reset has ended.
    pub async fn read_generation(
        &self,
        tape: &TapeName,
        number: u32,
        slice: &TapeSlice,
    ) -> Result<Vec<Entry>, StoreError> {
        let Some(record) = self.record(tape).await? else { return Ok(Vec::new()) };
        let Some(past) = record.past.iter().find(|past| past.number == number).cloned() else {
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

    /// What a tape shows of itself and of those it was forked from: all of a slice, or what a search finds in it.
    async fn read_with_ancestors(
        &self,
        record: TapeRecord,
        slice: &TapeSlice,
        search: Option<&TextSearch>,
    ) -> Result<Vec<Entry>, StoreError> {
        // From the tape itself back to the one it all began with: which rows of each are seen.
        let mut chain: Vec<(TapeRecord, TapeSlice)> = Vec::new();
        let mut seen = slice.clone();
        let mut next = Some(record);
        while let Some(record) = next.take() {
            let Some(fork) = record.fork.clone() else {
                chain.push((record, seen.clone()));
                break;
            };
            let own = TapeSlice { after: Some(seen.after.unwrap_or_default().max(fork.position)), ..seen.clone() };
            chain.push((record, own));
            seen.up_to = Some(seen.up_to.map_or(fork.position, |id| id.min(fork.position)));
            next = self.record(&fork.parent).await?;
        }
        // Before any is read: whether it can be read must not depend on where a limit is reached.
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

    /// Refuses a range that reaches into what was handed over to a tape store that is not there.
    fn check_available(&self, record: &TapeRecord, slice: &TapeSlice) -> Result<(), StoreError> {
        let after = slice.after.unwrap_or_default();
        let is_empty = slice.up_to.is_some_and(|up_to| up_to <= after);
        if self.external_store.is_none() && !is_empty && after < record.handed_over {
            return Err(StoreError::StoredElsewhere { tape: record.name.clone() });
        }
        Ok(())
    }

    /// The rows of one tape: what the other tape store keeps, and what still waits to be handed over.
    async fn read_rows(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        let here = self.store.read(tape, slice).await?;
        let Some(elsewhere) = &self.external_store else { return Ok(here) };
        let mut entries = elsewhere.read(tape, slice).await?;
        let kept: HashSet<EntryId> = entries.iter().map(|entry| entry.id).collect();
        entries.extend(here.into_iter().filter(|entry| !kept.contains(&entry.id)));
        match slice.order {
            EntryOrder::OldestFirst => entries.sort_by_key(|entry| entry.id),
            EntryOrder::NewestFirst => entries.sort_by_key(|entry| std::cmp::Reverse(entry.id)),
        }
        entries.truncate(slice.limit.unwrap_or(usize::MAX));
        Ok(entries)
    }

    /// The newest anchor of the present generation.
    pub async fn last_anchor(&self, tape: &TapeName) -> Result<Option<Entry>, StoreError> {
        Ok(self.read(tape, &TapeSlice::last_anchor()).await?.pop())
    }

    /// What the default view reads: from the newest anchor on, found by index.
    pub async fn window(&self, tape: &TapeName) -> Result<ContextWindow, StoreError> {
        let mut window = IncrementalWindow::default();
        window.refresh(self, tape, &[]).await.map(std::mem::take)
    }

    /// Begins a fork of a tape at an entry, or at its head.
    pub async fn fork(&self, parent: &TapeName, fork: &TapeName, at: Option<EntryId>) -> Result<(), StoreError> {
        self.sync_external_head(parent).await?;
        let record = self.record(parent).await?.ok_or_else(|| StoreError::TapeNotFound { tape: parent.clone() })?;
        let position = at.map_or(record.head, |at| at.min(record.head));
        let mut batch = Batch::new();
        batch.push(Fact::ForkTape { fork: fork.clone(), parent: parent.clone(), position });
        self.store.commit(batch).await.map(drop)
    }

    /// Ends a fork: its entries join the parent under new ids. Refused while a call of the parent is open.
    pub async fn merge(&self, fork: &TapeName) -> Result<(), StoreError> {
        for _ in 0..MERGE_CONFLICT_RETRIES {
            let (record, point) = self.find_open_fork(fork).await?;
            let parent = point.parent.clone();
            let head = self.record(&parent).await?.map(|record| record.head).unwrap_or_default();
            if has_open_call(&self.read_from_last_call(&parent).await?) {
                return Err(StoreError::OpenToolCall { tape: parent });
            }
            let own = TapeSlice::after(point.position);
            self.check_available(&record, &own)?;
            let entries = self.read_rows(&record.name, &own).await?;
            let mut batch = Batch::new();
            batch.preconditions.push(BatchPrecondition::TapeHead { tape: parent.clone(), head });
            batch.preconditions.push(BatchPrecondition::TapeHead { tape: fork.clone(), head: record.head });
            for draft in merge_drafts(&point, &entries, batch.facts.len()) {
                batch.append(&parent, draft);
            }
            batch.push(Fact::CloseFork { fork: fork.clone(), is_merged: true });
            match self.commit(batch).await {
                Err(StoreError::HeadMoved { .. }) => {}
                done => return done.map(drop),
            }
        }
        Err(StoreError::HeadMoved { tape: fork.clone() })
    }

    /// Ends a fork: its entries stay on it and go nowhere.
    pub async fn discard(&self, fork: &TapeName) -> Result<(), StoreError> {
        self.find_open_fork(fork).await?;
        let mut batch = Batch::new();
        batch.push(Fact::CloseFork { fork: fork.clone(), is_merged: false });
        self.store.commit(batch).await.map(drop)
    }

    async fn find_open_fork(&self, fork: &TapeName) -> Result<(TapeRecord, crate::ForkPoint), StoreError> {
        let record = self.record(fork).await?.ok_or_else(|| StoreError::TapeNotFound { tape: fork.clone() })?;
        match record.fork.clone() {
            Some(point) if point.state == ForkState::Open => Ok((record, point)),
            Some(_) => Err(StoreError::ForkClosed { tape: fork.clone() }),
            None => Err(StoreError::TapeNotFound { tape: fork.clone() }),
        }
    }

    async fn read_from_last_call(&self, tape: &TapeName) -> Result<Vec<Entry>, StoreError> {
        let last_call = TapeSlice { kinds: vec![EntryKind::ToolCall], ..TapeSlice::last_anchor() };
        let Some(call) = self.read(tape, &last_call).await?.pop() else { return Ok(Vec::new()) };
        self.read(tape, &TapeSlice::after(EntryId(call.id.0.saturating_sub(1)))).await
    }

    /// Begins a new generation of a tape with `session/start`; ids go on, and the old one stays readable.
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
