//! Stores in memory, for tests and for hosts without persistence.

mod rows;
mod tape_store;

use std::cmp::Reverse;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use capstan_protocol::{
    BlobHash, EntryId, EventKey, JsonObject, OutboundMessage, RunId, TapeName, Timestamp, WorkspaceId,
};

use self::rows::MemoryRows;
pub use self::tape_store::MemoryTapeStore;
use crate::{
    Batch, BlobStore, ChainLink, CommitReceipt, Entry, InFlightEvent, InboxRecord, InboxStore, IntegrityProblem,
    JournalStore, KeyValueRecord, KeyValueStore, LeaseRecord, LeaseStore, LedgerStore, NamespaceRecord, OutboxId,
    OutboxRecord, OutboxStatus, OutboxStore, RunRecord, SettledEvent, StoreError, TapeRecord, TapeSlice, rules,
};

/// Store in memory, with all guarantees of a [`Store`](crate::Store) except durability.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use capstan_protocol::{ChatMessage, TapeName};
/// use capstan_tape::{Batch, EntryDraft, Fact, MemoryStore, NewTape, TapeRepository};
///
/// let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
/// let name = TapeName::parse("demo")?;
/// let mut batch = Batch::new();
/// batch.push(Fact::EnsureTape(NewTape::without_session(name.clone())));
/// batch.append(&name, EntryDraft::message(&ChatMessage::user("hello")));
/// tapes.commit(batch).await?;
/// assert_eq!(tapes.window(&name).await?.following.len(), 1);
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore {
    rows: Mutex<MemoryRows>,
}

impl MemoryStore {
    /// Empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn rows(&self) -> MutexGuard<'_, MemoryRows> {
        // A commit that panicked leaves at most staged changes, which the next commit discards.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl JournalStore for MemoryStore {
    async fn commit(&self, mut batch: Batch) -> Result<CommitReceipt, StoreError> {
        let mut rows = self.rows();
        rows.discard_changes();
        let receipt = rules::apply(&mut *rows, &mut batch, Timestamp::now())?;
        rows.commit_changes();
        Ok(receipt)
    }

    async fn tape(&self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError> {
        Ok(self.rows().tapes.base().get(name).cloned())
    }

    async fn tape_page(&self, after: Option<&TapeName>, limit: usize) -> Result<Vec<TapeRecord>, StoreError> {
        let rows = self.rows();
        let following = rows.tapes.base().values().filter(|tape| after.is_none_or(|after| tape.name > *after));
        Ok(following.take(limit).cloned().collect())
    }

    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        let first = (tape.clone(), slice.after.unwrap_or_default());
        let last = (tape.clone(), slice.up_to.unwrap_or(EntryId(u64::MAX)));
        if first > last {
            return Ok(Vec::new());
        }
        let rows = self.rows();
        Ok(slice.select(rows.entries.base().range(first..=last).map(|(_, entry)| entry)))
    }

    async fn chain_link(&self, tape: &TapeName, up_to: EntryId) -> Result<Option<ChainLink>, StoreError> {
        let rows = self.rows();
        let last = rows.hashes.base().range((tape.clone(), EntryId(0))..=(tape.clone(), up_to)).next_back();
        Ok(last.map(|((_, id), hash)| ChainLink { id: *id, hash: *hash }))
    }

    async fn chain_page(&self, tape: &TapeName, after: EntryId, limit: usize) -> Result<Vec<ChainLink>, StoreError> {
        let rows = self.rows();
        let (first, last) = ((tape.clone(), after.next()), (tape.clone(), EntryId(u64::MAX)));
        let links = rows.hashes.base().range(first..=last).take(limit);
        Ok(links.map(|((_, id), hash)| ChainLink { id: *id, hash: *hash }).collect())
    }

    async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        // Only the rules write to memory, so there is no damage to find.
        Ok(Vec::new())
    }
}

#[async_trait]
impl LedgerStore for MemoryStore {
    async fn run(&self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.rows().runs.base().get(run_id).map(|(_, record)| record.clone()))
    }

    async fn run_page(&self, before: Option<&RunId>, limit: usize) -> Result<Vec<RunRecord>, StoreError> {
        let rows = self.rows();
        let Some(before) = run_position(&rows, before, u64::MAX) else { return Ok(Vec::new()) };
        let mut runs: Vec<&(u64, RunRecord)> = rows.runs.base().values().collect();
        runs.retain(|(number, _)| *number < before);
        runs.sort_by_key(|(number, _)| Reverse(*number));
        Ok(runs.into_iter().take(limit).map(|(_, record)| record.clone()).collect())
    }

    async fn open_run_page(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunRecord>, StoreError> {
        let rows = self.rows();
        let Some(after) = run_position(&rows, after, 0) else { return Ok(Vec::new()) };
        let mut runs: Vec<&(u64, RunRecord)> = rows.runs.base().values().collect();
        runs.retain(|(number, record)| *number > after && record.status.is_open());
        runs.sort_by_key(|(number, _)| *number);
        Ok(runs.into_iter().take(limit).map(|(_, record)| record.clone()).collect())
    }
}

/// Number of a run, or `default` if `run` is `None`; `None` for an unknown run.
fn run_position(rows: &MemoryRows, run: Option<&RunId>, default: u64) -> Option<u64> {
    match run {
        Some(run) => rows.runs.base().get(run).map(|(number, _)| *number),
        None => Some(default),
    }
}

#[async_trait]
impl InboxStore for MemoryStore {
    async fn inbox_record(&self, key: &EventKey) -> Result<Option<InboxRecord>, StoreError> {
        Ok(self.rows().inbox.base().get(key).cloned())
    }

    async fn in_flight_event(&self, key: &EventKey) -> Result<Option<InFlightEvent>, StoreError> {
        Ok(self.rows().in_flight.base().get(key).cloned())
    }

    async fn in_flight_page(
        &self,
        tape: Option<&TapeName>,
        after: Option<&InFlightEvent>,
        limit: usize,
    ) -> Result<Vec<InFlightEvent>, StoreError> {
        fn position(event: &InFlightEvent) -> (&TapeName, EntryId, &EventKey) {
            (&event.tape, event.entry, &event.key)
        }
        let rows = self.rows();
        let mut events: Vec<&InFlightEvent> = rows.in_flight.base().values().collect();
        events.retain(|event| tape.is_none_or(|tape| event.tape == *tape));
        events.retain(|event| after.is_none_or(|after| position(event) > position(after)));
        events.sort_by(|a, b| position(a).cmp(&position(b)));
        Ok(events.into_iter().take(limit).cloned().collect())
    }

    async fn settled_page(&self, after: Option<&EventKey>, limit: usize) -> Result<Vec<SettledEvent>, StoreError> {
        let rows = self.rows();
        let settled = rows.inbox.base().values().filter(|record| record.outcome.is_some());
        let following = settled.filter(|record| after.is_none_or(|after| record.key > *after)).take(limit);
        Ok(following.map(|record| SettledEvent { key: record.key.clone(), tape: record.tape.clone() }).collect())
    }
}

#[async_trait]
impl OutboxStore for MemoryStore {
    async fn pending_page(&self, after: OutboxId, limit: usize) -> Result<Vec<OutboxRecord>, StoreError> {
        let rows = self.rows();
        let pending = rows.outbox.base().values().filter(|row| row.id > after && is_pending(row));
        Ok(pending.take(limit).cloned().collect())
    }

    async fn pending_outbound_before(
        &self,
        before: OutboxId,
        message: &OutboundMessage,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let is_same_chat =
            |row: &OutboxRecord| row.message.channel == message.channel && row.message.chat_id == message.chat_id;
        let rows = self.rows();
        let between = rows.outbox.base().values().filter(|row| after < row.id && row.id < before);
        Ok(between.filter(|row| is_pending(row) && is_same_chat(row)).take(limit).cloned().collect())
    }

    async fn outbox_page(
        &self,
        event: &EventKey,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let rows = self.rows();
        let following = rows.outbox.base().values().filter(|row| row.id > after && row.event == *event);
        Ok(following.take(limit).cloned().collect())
    }
}

fn is_pending(row: &OutboxRecord) -> bool {
    matches!(row.status, OutboxStatus::Waiting { .. })
}

#[async_trait]
impl KeyValueStore for MemoryStore {
    async fn key_value(&self, namespace: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError> {
        Ok(self.rows().key_values.base().get(&(namespace.to_owned(), key.to_owned())).cloned())
    }

    async fn key_value_page(
        &self,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<KeyValueRecord>, StoreError> {
        let rows = self.rows();
        let first = (namespace.to_owned(), after.unwrap_or_default().to_owned());
        let records = rows.key_values.base().range(first..).map(|(_, record)| record);
        let records = records.take_while(|record| record.space == namespace);
        let following = records.filter(|record| after.is_none_or(|after| record.key.as_str() > after));
        Ok(following.take(limit).cloned().collect())
    }

    async fn namespace(&self, name: &str) -> Result<Option<NamespaceRecord>, StoreError> {
        Ok(self.rows().namespaces.base().get(name).cloned())
    }

    async fn namespace_page(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<NamespaceRecord>, StoreError> {
        let rows = self.rows();
        let matching = rows.namespaces.base().values().filter(|record| record.space.starts_with(prefix));
        let following = matching.filter(|record| after.is_none_or(|after| record.space.as_str() > after));
        Ok(following.take(limit).cloned().collect())
    }

    async fn state(&self, tape: &TapeName) -> Result<JsonObject, StoreError> {
        Ok(self.rows().state.base().get(tape).cloned().unwrap_or_default())
    }

    async fn workspace(&self, path: &str) -> Result<Option<WorkspaceId>, StoreError> {
        Ok(self.rows().workspaces.base().get(path).cloned())
    }
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn lease(&self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(self.rows().leases.base().get(tape).cloned())
    }
}

#[async_trait]
impl BlobStore for MemoryStore {
    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.rows().blobs.base().get(hash).cloned())
    }
}
