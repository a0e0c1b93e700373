//! Row access of a store.

use capstan_protocol::{BlobHash, EntryId, EventKey, Outcome, RunId, TapeName, WorkspaceId};
use serde_json::Value;

use crate::{
    ChainHash, ChainLink, ContentDigest, Entry, InFlightEvent, KeyValueRecord, LeaseRecord, NamespaceRecord,
    NewOutboxMessage, OutboxId, OutboxStatus, RunRecord, StoreError, TapeRecord,
};

/// Rows that a batch reads and writes, without rules. `put_*` inserts or replaces, `add_*` only inserts.
pub trait RowAccess {
    /// Announces that the following calls belong to the fact at this position of the batch. Stores may ignore it.
    fn begin_fact(&mut self, position: usize) {
        let _ = position;
    }
    /// Reads a tape.
    fn tape(&mut self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError>;
    /// Writes a tape.
    fn put_tape(&mut self, record: &TapeRecord) -> Result<(), StoreError>;
    /// Digest of the content of an entry. A store may have computed it beforehand.
    fn content_digest(&mut self, entry: &Entry) -> ContentDigest {
        ContentDigest::from_entry(entry)
    }
    /// Writes an entry of a tape and its hash.
    fn put_entry(&mut self, tape: &TapeName, entry: &Entry, hash: ChainHash) -> Result<(), StoreError>;
    /// Newest entry of a tape up to and including `up_to` that has a hash, also if the entry itself was removed.
    fn chain_link(&mut self, tape: &TapeName, up_to: EntryId) -> Result<Option<ChainLink>, StoreError>;
    /// Removes the entries of a tape up to and including `up_to`, but not their hashes.
    fn remove_entries(&mut self, tape: &TapeName, up_to: EntryId) -> Result<(), StoreError>;
    /// Writes the permanent record of an accepted event, and its record as an event in flight. Returns false, without
    /// any change, if the event was already accepted.
    fn add_accepted_event(&mut self, event: &InFlightEvent) -> Result<bool, StoreError>;
    /// Reads an event in flight.
    fn in_flight_event(&mut self, key: &EventKey) -> Result<Option<InFlightEvent>, StoreError>;
    /// Writes an event in flight.
    fn put_in_flight_event(&mut self, event: &InFlightEvent) -> Result<(), StoreError>;
    /// Removes an event in flight. Returns false if it was not in flight.
    fn remove_in_flight_event(&mut self, key: &EventKey) -> Result<bool, StoreError>;
    /// Writes the outcome of an accepted event that has none.
    fn put_outcome(&mut self, key: &EventKey, outcome: &Outcome, run_id: Option<&RunId>) -> Result<(), StoreError>;
    /// Reads a run.
    fn run(&mut self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError>;
    /// Writes a new run. Returns false, without any change, if it exists.
    fn add_run(&mut self, record: &RunRecord) -> Result<bool, StoreError>;
    /// Writes an existing run.
    fn put_run(&mut self, record: &RunRecord) -> Result<(), StoreError>;
    /// Writes a pending message with the next id.
    fn add_outbound(&mut self, outbound: &NewOutboxMessage) -> Result<OutboxId, StoreError>;
    /// Transfers a pending message that `from` owns to `owner`. Returns false if there is no such message.
    fn adopt_outbound(&mut self, id: OutboxId, from: Option<&str>, owner: &str) -> Result<bool, StoreError>;
    /// Writes the delivery status of a message. Returns false if the message does not exist.
    fn put_delivery(&mut self, id: OutboxId, status: &OutboxStatus) -> Result<bool, StoreError>;
    /// Writes content, unless it exists.
    fn put_blob(&mut self, hash: &BlobHash, bytes: &[u8]) -> Result<(), StoreError>;
    /// Removes content, if it exists.
    fn remove_blob(&mut self, hash: &BlobHash) -> Result<(), StoreError>;
    /// Writes a value of the session state of a tape, or removes it.
    fn put_state(&mut self, tape: &TapeName, key: &str, value: Option<&Value>) -> Result<(), StoreError>;
    /// Reads a namespace, if it ever had a value.
    fn namespace(&mut self, name: &str) -> Result<Option<NamespaceRecord>, StoreError>;
    /// Writes the record of a namespace.
    fn put_namespace(&mut self, record: &NamespaceRecord) -> Result<(), StoreError>;
    /// Reads a value of a namespace.
    fn key_value(&mut self, namespace: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError>;
    /// Writes a value of a namespace.
    fn put_key_value(&mut self, record: &KeyValueRecord) -> Result<(), StoreError>;
    /// Removes a value of a namespace.
    fn remove_key_value(&mut self, namespace: &str, key: &str) -> Result<(), StoreError>;
    /// Writes the identity of a workspace, unless it has one.
    fn put_workspace(&mut self, path: &str, identity: &WorkspaceId) -> Result<(), StoreError>;
    /// Reads the lease of a tape.
    fn lease(&mut self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError>;
    /// Writes the lease of a tape.
    fn put_lease(&mut self, record: &LeaseRecord) -> Result<(), StoreError>;
}
