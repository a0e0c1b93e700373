//! A store that refuses what it is told to, for tests of what a host does then.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan::protocol::{BlobHash, EventKey, JsonObject, OutboundMessage, RunId, TapeName, WorkspaceId};
use capstan::tape::{
    Batch, CommitReceipt, Entry, Fact, InFlightEvent, InboxRecord, IntegrityProblem, KeyValueRecord, LeaseRecord,
    MemoryStore, NamespaceRecord, OutboxId, OutboxRecord, RunRecord, SettledEvent, Store, StoreError, TapeRecord,
    TapeSlice,
};

/// Why a batch is refused, if it is.
type BatchRefusal = Box<dyn FnMut(&Batch) -> Option<StoreError> + Send>;

/// A store in memory that refuses some batches.
pub struct FaultyStore {
    inner: MemoryStore,
    refusal: Mutex<BatchRefusal>,
}

impl FaultyStore {
    /// One that refuses nothing yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { inner: MemoryStore::new(), refusal: Mutex::new(Box::new(|_| None)) })
    }

    /// From now on it refuses these.
    pub fn refuse(&self, refuses: impl FnMut(&Batch) -> Option<StoreError> + Send + 'static) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(refuses);
    }

    /// From now on its disk is full for so many batches that hold such a fact.
    pub fn refuse_first(&self, count: usize, is_it: impl Fn(&Fact) -> bool + Send + 'static) {
        let mut left = count;
        self.refuse(move |batch| {
            let refused = left > 0 && batch.facts.iter().any(&is_it);
            left -= usize::from(refused);
            refused.then(|| StoreError::DiskFull { what: "the store of a test".to_owned() })
        });
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn commit(&self, batch: Batch) -> Result<CommitReceipt, StoreError> {
        let refused = (self.refusal.lock().unwrap_or_else(PoisonError::into_inner))(&batch);
        match refused {
            Some(error) => Err(error),
            None => self.inner.commit(batch).await,
        }
    }

    async fn tape(&self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError> {
        self.inner.tape(name).await
    }

    async fn tapes(&self) -> Result<Vec<TapeRecord>, StoreError> {
        self.inner.tapes().await
    }

    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        self.inner.read(tape, slice).await
    }

    async fn inbox_record(&self, key: &EventKey) -> Result<Option<InboxRecord>, StoreError> {
        self.inner.inbox_record(key).await
    }

    async fn in_flight_events(&self, tape: Option<&TapeName>) -> Result<Vec<InFlightEvent>, StoreError> {
        self.inner.in_flight_events(tape).await
    }

    async fn settled_events(&self) -> Result<Vec<SettledEvent>, StoreError> {
        self.inner.settled_events().await
    }

    async fn run(&self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.inner.run(run_id).await
    }

    async fn runs(&self, limit: usize) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.runs(limit).await
    }

    async fn open_runs(&self) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.open_runs().await
    }

    async fn pending_outbound(&self) -> Result<Vec<OutboxRecord>, StoreError> {
        self.inner.pending_outbound().await
    }

    async fn pending_outbound_before(
        &self,
        id: OutboxId,
        message: &OutboundMessage,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        self.inner.pending_outbound_before(id, message, after, limit).await
    }

    async fn outbox_records(&self, event: &EventKey) -> Result<Vec<OutboxRecord>, StoreError> {
        self.inner.outbox_records(event).await
    }

    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.blob(hash).await
    }

    async fn state(&self, tape: &TapeName) -> Result<JsonObject, StoreError> {
        self.inner.state(tape).await
    }

    async fn workspace(&self, path: &str) -> Result<Option<WorkspaceId>, StoreError> {
        self.inner.workspace(path).await
    }

    async fn key_value(&self, space: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError> {
        self.inner.key_value(space, key).await
    }

    async fn key_values(
        &self,
        space: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<KeyValueRecord>, StoreError> {
        self.inner.key_values(space, after, limit).await
    }

    async fn namespace(&self, space: &str) -> Result<Option<NamespaceRecord>, StoreError> {
        self.inner.namespace(space).await
    }

    async fn namespaces(&self, prefix: &str) -> Result<Vec<NamespaceRecord>, StoreError> {
        self.inner.namespaces(prefix).await
    }

    async fn lease(&self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError> {
        self.inner.lease(tape).await
    }

    async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        self.inner.verify().await
    }
}
