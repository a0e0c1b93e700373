//! Store in memory that fails selected commits, or writes between reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_protocol::{BlobHash, EntryId, EventKey, JsonObject, OutboundMessage, RunId, TapeName, WorkspaceId};
use capstan_tape::{
    Batch, BlobStore, ChainLink, CommitReceipt, Entry, Fact, InFlightEvent, InboxRecord, InboxStore, IntegrityProblem,
    JournalStore, KeyValueRecord, KeyValueStore, LeaseRecord, LeaseStore, LedgerStore, MemoryStore, NamespaceRecord,
    OutboxId, OutboxRecord, OutboxStore, RunRecord, SettledEvent, StoreError, TapeRecord, TapeSlice,
};

/// Decides on the error of a batch; `None` commits it.
type BatchRefusal = Box<dyn FnMut(&Batch) -> Option<StoreError> + Send>;

/// Store in memory that refuses selected batches.
pub struct FaultyStore {
    inner: MemoryStore,
    refusal: Mutex<BatchRefusal>,
    panics_after_acceptance: AtomicBool,
    /// Batches of a concurrent writer, one of which is committed after each read.
    concurrent_batches: Mutex<Vec<Batch>>,
}

impl FaultyStore {
    /// Store that commits every batch.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::new(),
            refusal: Mutex::new(Box::new(|_| None)),
            panics_after_acceptance: AtomicBool::new(false),
            concurrent_batches: Mutex::default(),
        })
    }

    /// Panics, or not, after each commit that accepts an event.
    pub fn panic_after_acceptance(&self, panics: bool) {
        self.panics_after_acceptance.store(panics, Ordering::SeqCst);
    }

    /// Commits one of these batches after each read of entries, last one first.
    pub fn write_after_reads(&self, batches: Vec<Batch>) {
        *self.concurrent_batches.lock().unwrap_or_else(PoisonError::into_inner) = batches;
    }

    /// Replaces the rule by which batches are refused.
    pub fn refuse(&self, refusal: impl FnMut(&Batch) -> Option<StoreError> + Send + 'static) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(refusal);
    }

    /// Reports a full disk for the next `count` batches with a matching fact.
    pub fn refuse_first(&self, count: usize, is_match: impl Fn(&Fact) -> bool + Send + 'static) {
        let mut remaining = count;
        self.refuse(move |batch| {
            let refused = remaining > 0 && batch.facts.iter().any(&is_match);
            remaining -= usize::from(refused);
            refused.then(|| StoreError::DiskFull { what: "the store of a test".to_owned() })
        });
    }
}

#[async_trait]
impl JournalStore for FaultyStore {
    async fn commit(&self, batch: Batch) -> Result<CommitReceipt, StoreError> {
        let refused = (self.refusal.lock().unwrap_or_else(PoisonError::into_inner))(&batch);
        let panics = self.panics_after_acceptance.load(Ordering::SeqCst)
            && batch.facts.iter().any(|fact| matches!(fact, Fact::AcceptEvent { .. }));
        if let Some(error) = refused {
            return Err(error);
        }
        let committed = self.inner.commit(batch).await;
        assert!(!panics, "requested by a test");
        committed
    }

    async fn tape(&self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError> {
        self.inner.tape(name).await
    }

    async fn tape_page(&self, after: Option<&TapeName>, limit: usize) -> Result<Vec<TapeRecord>, StoreError> {
        self.inner.tape_page(after, limit).await
    }

    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        let entries = self.inner.read(tape, slice).await;
        let batch = self.concurrent_batches.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(batch) = batch {
            self.inner.commit(batch).await?;
        }
        entries
    }

    async fn chain_link(&self, tape: &TapeName, up_to: EntryId) -> Result<Option<ChainLink>, StoreError> {
        self.inner.chain_link(tape, up_to).await
    }

    async fn chain_page(&self, tape: &TapeName, after: EntryId, limit: usize) -> Result<Vec<ChainLink>, StoreError> {
        self.inner.chain_page(tape, after, limit).await
    }

    async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        self.inner.verify().await
    }
}

#[async_trait]
impl LedgerStore for FaultyStore {
    async fn run(&self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.inner.run(run_id).await
    }

    async fn run_page(&self, before: Option<&RunId>, limit: usize) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.run_page(before, limit).await
    }

    async fn open_run_page(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.open_run_page(after, limit).await
    }
}

#[async_trait]
impl InboxStore for FaultyStore {
    async fn inbox_record(&self, key: &EventKey) -> Result<Option<InboxRecord>, StoreError> {
        self.inner.inbox_record(key).await
    }

    async fn in_flight_event(&self, key: &EventKey) -> Result<Option<InFlightEvent>, StoreError> {
        self.inner.in_flight_event(key).await
    }

    async fn in_flight_page(
        &self,
        tape: Option<&TapeName>,
        after: Option<&InFlightEvent>,
        limit: usize,
    ) -> Result<Vec<InFlightEvent>, StoreError> {
        self.inner.in_flight_page(tape, after, limit).await
    }

    async fn settled_page(&self, after: Option<&EventKey>, limit: usize) -> Result<Vec<SettledEvent>, StoreError> {
        self.inner.settled_page(after, limit).await
    }
}

#[async_trait]
impl OutboxStore for FaultyStore {
    async fn pending_page(&self, after: OutboxId, limit: usize) -> Result<Vec<OutboxRecord>, StoreError> {
        self.inner.pending_page(after, limit).await
    }

    async fn pending_outbound_before(
        &self,
        before: OutboxId,
        message: &OutboundMessage,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        self.inner.pending_outbound_before(before, message, after, limit).await
    }

    async fn outbox_page(
        &self,
        event: &EventKey,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        self.inner.outbox_page(event, after, limit).await
    }
}

#[async_trait]
impl KeyValueStore for FaultyStore {
    async fn key_value(&self, namespace: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError> {
        self.inner.key_value(namespace, key).await
    }

    async fn key_value_page(
        &self,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<KeyValueRecord>, StoreError> {
        self.inner.key_value_page(namespace, after, limit).await
    }

    async fn namespace(&self, name: &str) -> Result<Option<NamespaceRecord>, StoreError> {
        self.inner.namespace(name).await
    }

    async fn namespace_page(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<NamespaceRecord>, StoreError> {
        self.inner.namespace_page(prefix, after, limit).await
    }

    async fn state(&self, tape: &TapeName) -> Result<JsonObject, StoreError> {
        self.inner.state(tape).await
    }

    async fn workspace(&self, path: &str) -> Result<Option<WorkspaceId>, StoreError> {
        self.inner.workspace(path).await
    }
}

#[async_trait]
impl LeaseStore for FaultyStore {
    async fn lease(&self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError> {
        self.inner.lease(tape).await
    }
}

#[async_trait]
impl BlobStore for FaultyStore {
    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.blob(hash).await
    }
}
