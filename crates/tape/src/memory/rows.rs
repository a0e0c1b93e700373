//! Tables of the memory store.

use capstan_protocol::{BlobHash, EntryId, EventKey, JsonObject, Outcome, RunId, TapeName, WorkspaceId};
use serde_json::Value;

use crate::overlay_map::OverlayMap;
use crate::rules::RowAccess;
use crate::{
    ChainHash, ChainLink, Entry, InFlightEvent, InboxRecord, KeyValueRecord, LeaseRecord, NamespaceRecord,
    NewOutboxMessage, OutboxId, OutboxRecord, OutboxStatus, RunRecord, StoreError, TapeRecord,
};

/// Tables whose changes are committed or discarded together.
#[derive(Debug, Default)]
pub(super) struct MemoryRows {
    pub(super) tapes: OverlayMap<TapeName, TapeRecord>,
    pub(super) entries: OverlayMap<(TapeName, EntryId), Entry>,
    /// Hashes of entries, including removed ones.
    pub(super) hashes: OverlayMap<(TapeName, EntryId), ChainHash>,
    pub(super) inbox: OverlayMap<EventKey, InboxRecord>,
    pub(super) in_flight: OverlayMap<EventKey, InFlightEvent>,
    pub(super) runs: OverlayMap<RunId, (u64, RunRecord)>,
    pub(super) outbox: OverlayMap<u64, OutboxRecord>,
    pub(super) blobs: OverlayMap<BlobHash, Vec<u8>>,
    pub(super) state: OverlayMap<TapeName, JsonObject>,
    pub(super) namespaces: OverlayMap<String, NamespaceRecord>,
    pub(super) key_values: OverlayMap<(String, String), KeyValueRecord>,
    pub(super) workspaces: OverlayMap<String, WorkspaceId>,
    pub(super) leases: OverlayMap<TapeName, LeaseRecord>,
    /// Last number of a run or an outbox row. Numbers of rejected batches are not reused.
    last_number: u64,
}

/// Calls a method of every table.
macro_rules! for_each_table {
    ($rows:expr, $method:ident) => {{
        $rows.tapes.$method();
        $rows.entries.$method();
        $rows.hashes.$method();
        $rows.inbox.$method();
        $rows.in_flight.$method();
        $rows.runs.$method();
        $rows.outbox.$method();
        $rows.blobs.$method();
        $rows.state.$method();
        $rows.namespaces.$method();
        $rows.key_values.$method();
        $rows.workspaces.$method();
        $rows.leases.$method();
    }};
}

impl MemoryRows {
    /// Discards the changes of a rejected batch.
    pub(super) fn discard_changes(&mut self) {
        for_each_table!(self, discard_changes);
    }

    /// Applies the changes of a batch.
    pub(super) fn commit_changes(&mut self) {
        for_each_table!(self, commit_changes);
    }

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

    fn put_entry(&mut self, tape: &TapeName, entry: &Entry, hash: ChainHash) -> Result<(), StoreError> {
        self.entries.insert((tape.clone(), entry.id), entry.clone());
        self.hashes.insert((tape.clone(), entry.id), hash);
        Ok(())
    }

    fn chain_link(&mut self, tape: &TapeName, up_to: EntryId) -> Result<Option<ChainLink>, StoreError> {
        let last = self.hashes.last_in(&((tape.clone(), EntryId(0))..=(tape.clone(), up_to)));
        Ok(last.map(|((_, id), hash)| ChainLink { id: *id, hash: *hash }))
    }

    fn remove_entries(&mut self, tape: &TapeName, up_to: EntryId) -> Result<(), StoreError> {
        self.entries.remove_range(&((tape.clone(), EntryId(0))..=(tape.clone(), up_to)));
        Ok(())
    }

    fn add_accepted_event(&mut self, event: &InFlightEvent) -> Result<bool, StoreError> {
        if self.inbox.get(&event.key).is_some() {
            return Ok(false);
        }
        let InFlightEvent { key, session, tape, entry, accepted_at, .. } = event.clone();
        self.inbox.insert(key.clone(), InboxRecord { key, session, tape, entry, accepted_at, outcome: None });
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

    fn add_outbound(&mut self, outbound: &NewOutboxMessage) -> Result<OutboxId, StoreError> {
        let id = OutboxId(self.next_number());
        let NewOutboxMessage { message, event, staged_at, owner } = outbound.clone();
        let (owner, status) = (Some(owner), OutboxStatus::waiting());
        self.outbox.insert(id.0, OutboxRecord { id, message, event, staged_at, owner, status });
        Ok(id)
    }

    fn adopt_outbound(&mut self, id: OutboxId, from: Option<&str>, owner: &str) -> Result<bool, StoreError> {
        let can_adopt = |record: &&OutboxRecord| {
            matches!(record.status, OutboxStatus::Waiting { .. }) && record.owner.as_deref() == from
        };
        let Some(record) = self.outbox.get(&id.0).filter(can_adopt).cloned() else { return Ok(false) };
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

    fn namespace(&mut self, name: &str) -> Result<Option<NamespaceRecord>, StoreError> {
        Ok(self.namespaces.get(&name.to_owned()).cloned())
    }

    fn put_namespace(&mut self, record: &NamespaceRecord) -> Result<(), StoreError> {
        self.namespaces.insert(record.space.clone(), record.clone());
        Ok(())
    }

    fn key_value(&mut self, namespace: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError> {
        Ok(self.key_values.get(&(namespace.to_owned(), key.to_owned())).cloned())
    }

    fn put_key_value(&mut self, record: &KeyValueRecord) -> Result<(), StoreError> {
        self.key_values.insert((record.space.clone(), record.key.clone()), record.clone());
        Ok(())
    }

    fn remove_key_value(&mut self, namespace: &str, key: &str) -> Result<(), StoreError> {
        let key = (namespace.to_owned(), key.to_owned());
        self.key_values.remove_range(&(key.clone()..=key));
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
