//! The rows that a store provides.

use capstan_protocol::{BlobHash, EntryId, EventKey, Outcome, RunId, TapeName, WorkspaceId};
use serde_json::Value;

use crate::{
    Entry, InFlightEvent, KeyValueRecord, LeaseRecord, NamespaceRecord, NewOutbound, OutboxId, OutboxStatus, RunRecord,
    StoreError, TapeRecord,
};

/// The rows a batch reads and writes. They know no rules: "put" inserts or replaces.
pub trait RowAccess {
    /// What follows is done for the fact of this position in its batch. A store need not know.
    fn begin_fact(&mut self, position: usize) {
        let _ = position;
    }
    /// A tape.
    fn tape(&mut self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError>;
    /// Keeps a tape.
    fn put_tape(&mut self, record: &TapeRecord) -> Result<(), StoreError>;
    /// Keeps an entry of a tape.
    fn put_entry(&mut self, tape: &TapeName, entry: &Entry) -> Result<(), StoreError>;
    /// Removes the entries of a tape up to this one, itself included.
    fn remove_entries(&mut self, tape: &TapeName, up_to: EntryId) -> Result<(), StoreError>;
    /// Keeps a newly accepted event: that it was accepted, for good, and that it is in flight. Says whether it is new;
    /// one that was accepted before stays as it is.
    fn add_accepted_event(&mut self, event: &InFlightEvent) -> Result<bool, StoreError>;
    /// An event in flight.
    fn in_flight_event(&mut self, key: &EventKey) -> Result<Option<InFlightEvent>, StoreError>;
    /// Keeps what changed of an event that is in flight.
    fn put_in_flight_event(&mut self, event: &InFlightEvent) -> Result<(), StoreError>;
    /// An event is no longer in flight; says whether it was.
    fn remove_in_flight_event(&mut self, key: &EventKey) -> Result<bool, StoreError>;
    /// Keeps the outcome of an accepted event that has none.
    fn put_outcome(&mut self, key: &EventKey, outcome: &Outcome, run_id: Option<&RunId>) -> Result<(), StoreError>;
    /// A run.
    fn run(&mut self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError>;
    /// Keeps a run that began. Says whether it is new; one that was there stays as it is.
    fn add_run(&mut self, record: &RunRecord) -> Result<bool, StoreError>;
    /// Keeps what changed of a run that is there.
    fn put_run(&mut self, record: &RunRecord) -> Result<(), StoreError>;
    /// Keeps a message that waits, and numbers it after all before it.
    fn add_outbound(&mut self, outbound: &NewOutbound) -> Result<OutboxId, StoreError>;
    /// Gives a message that waits, and is this process's, to another; says whether there was such a one.
    fn adopt_outbound(&mut self, id: OutboxId, from: Option<&str>, owner: &str) -> Result<bool, StoreError>;
    /// Keeps what became of a message, and says whether there is such a message.
    fn put_delivery(&mut self, id: OutboxId, status: &OutboxStatus) -> Result<bool, StoreError>;
    /// Keeps a content unless it is there.
    fn put_blob(&mut self, hash: &BlobHash, bytes: &[u8]) -> Result<(), StoreError>;
    /// Removes a content, if it is there.
    fn remove_blob(&mut self, hash: &BlobHash) -> Result<(), StoreError>;
    /// Keeps a value of the state of a tape's session, or removes it.
    fn put_state(&mut self, tape: &TapeName, key: &str, value: Option<&Value>) -> Result<(), StoreError>;
    /// A space, if something was ever kept in it.
    fn namespace(&mut self, space: &str) -> Result<Option<NamespaceRecord>, StoreError>;
    /// Keeps what is known about a space.
    fn put_namespace(&mut self, record: &NamespaceRecord) -> Result<(), StoreError>;
    /// A value of a space.
    fn key_value(&mut self, space: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError>;
    /// Keeps a value of a space.
    fn put_key_value(&mut self, kept: &KeyValueRecord) -> Result<(), StoreError>;
    /// Removes a value of a space.
    fn remove_key_value(&mut self, space: &str, key: &str) -> Result<(), StoreError>;
    /// Keeps the identity of a workspace unless it has one.
    fn put_workspace(&mut self, path: &str, identity: &WorkspaceId) -> Result<(), StoreError>;
    /// The lease of a tape.
    fn lease(&mut self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError>;
    /// Keeps the lease of a tape.
    fn put_lease(&mut self, record: &LeaseRecord) -> Result<(), StoreError>;
}
