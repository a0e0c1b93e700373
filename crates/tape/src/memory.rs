//! Stores that keep everything in memory: for tests, and for a host that needs no past.

mod tape_store;

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use capstan_protocol::{BlobHash, EntryId, EventKey, JsonObject, Outcome, RunId, TapeName, Timestamp, WorkspaceId};
use serde_json::Value;

pub use self::tape_store::MemoryTapeStore;
use crate::overlay_map::OverlayMap;
use crate::rules::{self, RowAccess};
use crate::{
    Batch, CommitReceipt, Entry, InFlightEvent, InboxRecord, IntegrityProblem, KeyValueRecord, LeaseRecord,
    NamespaceRecord, NewOutbound, OutboxId, OutboxRecord, OutboxStatus, RunRecord, SettledEvent, Store, StoreError,
    TapeRecord, TapeSlice,
};

/// A journal in memory. It keeps every promise of a [`Store`] but the one to outlive the process.
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
/// batch.push(Fact::EnsureTape(NewTape::with_name(name.clone())));
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
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn rows(&self) -> MutexGuard<'_, MemoryRows> {
        // A commit that panicked has left staged changes at worst, and the next one drops them.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct MemoryRows {
    tapes: OverlayMap<TapeName, TapeRecord>,
    entries: OverlayMap<(TapeName, EntryId), Entry>,
    inbox: OverlayMap<EventKey, InboxRecord>,
    in_flight: OverlayMap<EventKey, InFlightEvent>,
    runs: OverlayMap<RunId, (u64, RunRecord)>,
    outbox: OverlayMap<u64, OutboxRecord>,
    blobs: OverlayMap<BlobHash, Vec<u8>>,
    state: OverlayMap<TapeName, JsonObject>,
    spaces: OverlayMap<String, NamespaceRecord>,
    kept: OverlayMap<(String, String), KeyValueRecord>,
    workspaces: OverlayMap<String, WorkspaceId>,
    leases: OverlayMap<TapeName, LeaseRecord>,
    /// The last number given to a run or an outbox row; one that a failed batch took is not used again.
    last_number: u64,
}

/// Does the same to every table.
macro_rules! each_table {
    ($rows:expr, $method:ident) => {{
        $rows.tapes.$method();
        $rows.entries.$method();
        $rows.inbox.$method();
        $rows.in_flight.$method();
        $rows.runs.$method();
        $rows.outbox.$method();
        $rows.blobs.$method();
        $rows.state.$method();
        $rows.spaces.$method();
        $rows.kept.$method();
        $rows.workspaces.$method();
        $rows.leases.$method();
    }};
}

impl MemoryRows {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

impl RowAccess for MemoryRows {
    fn tape(&mut self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError> {
        Ok(self.tapes.get(name).cloned())
    }

    fn put_tape(&mut self, record: &TapeRecord) -> Result<(), StoreError> {
        self.tapes.insert(record.name.clone(), record.clone());
        Ok(())
    }

    fn put_entry(&mut self, tape: &TapeName, entry: &Entry) -> Result<(), StoreError> {
        self.entries.insert((tape.clone(), entry.id), entry.clone());
        Ok(())
    }

    fn remove_entries(&mut self, tape: &TapeName, up_to: EntryId) -> Result<(), StoreError> {
        self.entries.remove_range(&((tape.clone(), EntryId(0))..=(tape.clone(), up_to)));
        Ok(())
    }

    fn add_accepted_event(&mut self, event: &InFlightEvent) -> Result<bool, StoreError> {
        if self.inbox.get(&event.key).is_some() {
            return Ok(false);
        }
        let InFlightEvent { key, session, tape, entry, accepted_at: at, .. } = event.clone();
        self.inbox.insert(key.clone(), InboxRecord { key, session, tape, entry, accepted_at: at, outcome: None });
        self.put_in_flight_event(event)?;
        Ok(true)
    }

    fn in_flight_event(&mut self, key: &EventKey) -> Result<Option<InFlightEvent>, StoreError> {
        Ok(self.in_flight.get(key).cloned())
    }

    fn put_in_flight_event(&mut self, event: &InFlightEvent) -> Result<(), StoreError> {
        self.in_flight.insert(event.key.clone(), event.clone());
        Ok(())
    }

    fn remove_in_flight_event(&mut self, key: &EventKey) -> Result<bool, StoreError> {
        let was_in_flight = self.in_flight.get(key).is_some();
        self.in_flight.remove_range(&(key.clone()..=key.clone()));
        Ok(was_in_flight)
    }

    fn put_outcome(&mut self, key: &EventKey, outcome: &Outcome, run_id: Option<&RunId>) -> Result<(), StoreError> {
        if let Some(record) = self.inbox.get(key).cloned() {
            let outcome = Some((outcome.clone(), run_id.cloned()));
            self.inbox.insert(key.clone(), InboxRecord { outcome, ..record });
        }
        Ok(())
    }

    fn run(&mut self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.runs.get(run_id).map(|(_, record)| record.clone()))
    }

    fn add_run(&mut self, record: &RunRecord) -> Result<bool, StoreError> {
        let is_new = self.runs.get(&record.run_id).is_none();
        if is_new {
            self.put_run(record)?;
        }
        Ok(is_new)
    }

    fn put_run(&mut self, record: &RunRecord) -> Result<(), StoreError> {
        let known = self.runs.get(&record.run_id).map(|(number, _)| *number);
        let number = known.unwrap_or_else(|| self.next_number());
        self.runs.insert(record.run_id.clone(), (number, record.clone()));
        Ok(())
    }

    fn add_outbound(&mut self, outbound: &NewOutbound) -> Result<OutboxId, StoreError> {
        let id = OutboxId(self.next_number());
        let NewOutbound { message, event, staged_at: at, owner } = outbound.clone();
        let (owner, status) = (Some(owner), OutboxStatus::waiting());
        self.outbox.insert(id.0, OutboxRecord { id, message, event, staged_at: at, owner, status });
        Ok(id)
    }

    fn adopt_outbound(&mut self, id: OutboxId, from: Option<&str>, owner: &str) -> Result<bool, StoreError> {
        let waits = |record: &&OutboxRecord| {
            matches!(record.status, OutboxStatus::Waiting { .. }) && record.owner.as_deref() == from
        };
        let Some(record) = self.outbox.get(&id.0).filter(waits).cloned() else { return Ok(false) };
        self.outbox.insert(id.0, OutboxRecord { owner: Some(owner.to_owned()), ..record });
        Ok(true)
    }

    fn put_delivery(&mut self, id: OutboxId, status: &OutboxStatus) -> Result<bool, StoreError> {
        let Some(record) = self.outbox.get(&id.0).cloned() else { return Ok(false) };
        self.outbox.insert(id.0, OutboxRecord { status: status.clone(), ..record });
        Ok(true)
    }

    fn put_blob(&mut self, hash: &BlobHash, bytes: &[u8]) -> Result<(), StoreError> {
        if self.blobs.get(hash).is_none() {
            self.blobs.insert(hash.clone(), bytes.to_vec());
        }
        Ok(())
    }

    fn remove_blob(&mut self, hash: &BlobHash) -> Result<(), StoreError> {
        self.blobs.remove_range(&(hash.clone()..=hash.clone()));
        Ok(())
    }

    fn put_state(&mut self, tape: &TapeName, key: &str, value: Option<&Value>) -> Result<(), StoreError> {
        let mut state = self.state.get(tape).cloned().unwrap_or_default();
        match value {
            Some(value) => state.insert(key.to_owned(), value.clone()),
            None => state.shift_remove(key),
        };
        self.state.insert(tape.clone(), state);
        Ok(())
    }

    fn namespace(&mut self, space: &str) -> Result<Option<NamespaceRecord>, StoreError> {
        Ok(self.spaces.get(&space.to_owned()).cloned())
    }

    fn put_namespace(&mut self, record: &NamespaceRecord) -> Result<(), StoreError> {
        self.spaces.insert(record.space.clone(), record.clone());
        Ok(())
    }

    fn key_value(&mut self, space: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError> {
        Ok(self.kept.get(&(space.to_owned(), key.to_owned())).cloned())
    }

    fn put_key_value(&mut self, kept: &KeyValueRecord) -> Result<(), StoreError> {
        self.kept.insert((kept.space.clone(), kept.key.clone()), kept.clone());
        Ok(())
    }

    fn remove_key_value(&mut self, space: &str, key: &str) -> Result<(), StoreError> {
        let key = (space.to_owned(), key.to_owned());
        self.kept.remove_range(&(key.clone()..=key));
        Ok(())
    }

    fn put_workspace(&mut self, path: &str, identity: &WorkspaceId) -> Result<(), StoreError> {
        let path = path.to_owned();
        if self.workspaces.get(&path).is_none() {
            self.workspaces.insert(path, identity.clone());
        }
        Ok(())
    }

    fn lease(&mut self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(self.leases.get(tape).cloned())
    }

    fn put_lease(&mut self, record: &LeaseRecord) -> Result<(), StoreError> {
        self.leases.insert(record.tape.clone(), record.clone());
        Ok(())
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, mut batch: Batch) -> Result<CommitReceipt, StoreError> {
        let mut rows = self.rows();
        each_table!(rows, discard_changes);
        let committed = rules::apply(&mut *rows, &mut batch, Timestamp::now())?;
        each_table!(rows, commit_changes);
        Ok(committed)
    }

    async fn tape(&self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError> {
        Ok(self.rows().tapes.base().get(name).cloned())
    }

    async fn tapes(&self) -> Result<Vec<TapeRecord>, StoreError> {
        Ok(self.rows().tapes.base().values().cloned().collect())
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

    async fn inbox_record(&self, key: &EventKey) -> Result<Option<InboxRecord>, StoreError> {
        Ok(self.rows().inbox.base().get(key).cloned())
    }

    async fn in_flight_events(&self, tape: Option<&TapeName>) -> Result<Vec<InFlightEvent>, StoreError> {
        let rows = self.rows();
        let of_tape = |event: &&InFlightEvent| tape.is_none_or(|tape| event.tape == *tape);
        let mut events: Vec<InFlightEvent> = rows.in_flight.base().values().filter(of_tape).cloned().collect();
        events.sort_by(|a, b| (&a.tape, a.entry).cmp(&(&b.tape, b.entry)));
        Ok(events)
    }

    async fn settled_events(&self) -> Result<Vec<SettledEvent>, StoreError> {
        let rows = self.rows();
        let settled = rows.inbox.base().values().filter(|record| record.outcome.is_some());
        Ok(settled.map(|record| SettledEvent { key: record.key.clone(), tape: record.tape.clone() }).collect())
    }

    async fn run(&self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.rows().runs.base().get(run_id).map(|(_, record)| record.clone()))
    }

    async fn runs(&self, limit: usize) -> Result<Vec<RunRecord>, StoreError> {
        let rows = self.rows();
        let mut runs: Vec<&(u64, RunRecord)> = rows.runs.base().values().collect();
        runs.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        Ok(runs.into_iter().take(limit).map(|(_, record)| record.clone()).collect())
    }

    async fn open_runs(&self) -> Result<Vec<RunRecord>, StoreError> {
        let rows = self.rows();
        let mut runs: Vec<&(u64, RunRecord)> = rows.runs.base().values().collect();
        runs.retain(|(_, record)| record.status.is_open());
        runs.sort_by_key(|(number, _)| *number);
        Ok(runs.into_iter().map(|(_, record)| record.clone()).collect())
    }

    async fn pending_outbound(&self) -> Result<Vec<OutboxRecord>, StoreError> {
        let rows = self.rows();
        let waits = |record: &&OutboxRecord| matches!(record.status, OutboxStatus::Waiting { .. });
        Ok(rows.outbox.base().values().filter(waits).cloned().collect())
    }

    async fn outbox_records(&self, event: &EventKey) -> Result<Vec<OutboxRecord>, StoreError> {
        let rows = self.rows();
        Ok(rows.outbox.base().values().filter(|record| record.event == *event).cloned().collect())
    }

    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.rows().blobs.base().get(hash).cloned())
    }

    async fn state(&self, tape: &TapeName) -> Result<JsonObject, StoreError> {
        Ok(self.rows().state.base().get(tape).cloned().unwrap_or_default())
    }

    async fn key_value(&self, space: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError> {
        Ok(self.rows().kept.base().get(&(space.to_owned(), key.to_owned())).cloned())
    }

    async fn key_values(
        &self,
        space: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<KeyValueRecord>, StoreError> {
        let rows = self.rows();
        let of_space = rows.kept.base().values().filter(|kept| kept.space == space);
        let following = of_space.filter(|kept| after.is_none_or(|after| kept.key.as_str() > after));
        Ok(following.take(limit).cloned().collect())
    }

    async fn namespace(&self, space: &str) -> Result<Option<NamespaceRecord>, StoreError> {
        Ok(self.rows().spaces.base().get(space).cloned())
    }

    async fn namespaces(&self, prefix: &str) -> Result<Vec<NamespaceRecord>, StoreError> {
        let rows = self.rows();
        Ok(rows.spaces.base().values().filter(|record| record.space.starts_with(prefix)).cloned().collect())
    }

    async fn workspace(&self, path: &str) -> Result<Option<WorkspaceId>, StoreError> {
        Ok(self.rows().workspaces.base().get(path).cloned())
    }

    async fn lease(&self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(self.rows().leases.base().get(tape).cloned())
    }

    async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        // Memory is written by the rules alone: there is nothing to find.
        Ok(Vec::new())
    }
}
