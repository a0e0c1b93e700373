//! A store that refuses what it is told to, for tests of what a host does then.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan::protocol::{BlobHash, EventKey, Map, Outbound, RunId, TapeName, WorkspaceId};
use capstan::tape::{
    AcceptedRecord, Batch, Committed, Entry, Fact, InFlight, Kept, LeaseRecord, MemoryStore, OutboxId, OutboxRecord,
    Problem, RunRecord, Settled, Slice, SpaceRecord, Store, StoreError, TapeRecord,
};

/// Why a batch is refused, if it is.
type Refuses = Box<dyn FnMut(&Batch) -> Option<StoreError> + Send>;

/// A store in memory that refuses some batches.
pub struct Frail {
    inner: MemoryStore,
    refuses: Mutex<Refuses>,
}

impl Frail {
    /// One that refuses nothing yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { inner: MemoryStore::new(), refuses: Mutex::new(Box::new(|_| None)) })
    }

    /// From now on it refuses these.
    pub fn refuse(&self, refuses: impl FnMut(&Batch) -> Option<StoreError> + Send + 'static) {
        *self.refuses.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(refuses);
    }

    /// From now on its disk is full for so many batches that hold such a fact.
    pub fn refuse_first(&self, count: usize, is_it: impl Fn(&Fact) -> bool + Send + 'static) {
        let mut left = count;
        self.refuse(move |batch| {
            let refused = left > 0 && batch.facts.iter().any(&is_it);
            left -= usize::from(refused);
            refused.then(|| StoreError::Full { what: "the store of a test".to_owned() })
        });
    }
}

#[async_trait]
impl Store for Frail {
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let refused = (self.refuses.lock().unwrap_or_else(PoisonError::into_inner))(&batch);
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

    async fn read(&self, tape: &TapeName, slice: &Slice) -> Result<Vec<Entry>, StoreError> {
        self.inner.read(tape, slice).await
    }

    async fn accepted(&self, key: &EventKey) -> Result<Option<AcceptedRecord>, StoreError> {
        self.inner.accepted(key).await
    }

    async fn in_flight(&self, tape: Option<&TapeName>) -> Result<Vec<InFlight>, StoreError> {
        self.inner.in_flight(tape).await
    }

    async fn settled(&self) -> Result<Vec<Settled>, StoreError> {
        self.inner.settled().await
    }

    async fn run(&self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.inner.run(run_id).await
    }

    async fn runs(&self, limit: usize) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.runs(limit).await
    }

    async fn running(&self) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.running().await
    }

    async fn waiting(&self) -> Result<Vec<OutboxRecord>, StoreError> {
        self.inner.waiting().await
    }

    async fn waiting_before(
        &self,
        id: OutboxId,
        message: &Outbound,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        self.inner.waiting_before(id, message, after, limit).await
    }

    async fn outbox(&self, event: &EventKey) -> Result<Vec<OutboxRecord>, StoreError> {
        self.inner.outbox(event).await
    }

    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.blob(hash).await
    }

    async fn state(&self, tape: &TapeName) -> Result<Map, StoreError> {
        self.inner.state(tape).await
    }

    async fn workspace(&self, path: &str) -> Result<Option<WorkspaceId>, StoreError> {
        self.inner.workspace(path).await
    }

    async fn kept(&self, space: &str, key: &str) -> Result<Option<Kept>, StoreError> {
        self.inner.kept(space, key).await
    }

    async fn kept_in(&self, space: &str, after: Option<&str>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        self.inner.kept_in(space, after, limit).await
    }

    async fn space(&self, space: &str) -> Result<Option<SpaceRecord>, StoreError> {
        self.inner.space(space).await
    }

    async fn spaces(&self, prefix: &str) -> Result<Vec<SpaceRecord>, StoreError> {
        self.inner.spaces(prefix).await
    }

    async fn lease(&self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError> {
        self.inner.lease(tape).await
    }

    async fn verify(&self) -> Result<Vec<Problem>, StoreError> {
        self.inner.verify().await
    }
}
