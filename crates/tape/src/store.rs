//! What a store must do.

use async_trait::async_trait;
use capstan_protocol::{BlobHash, EventKey, JsonObject, OutboundMessage, RunId, TapeName, WorkspaceId};

use crate::{
    Batch, CommitReceipt, Entry, InFlightEvent, InboxRecord, IntegrityProblem, KeyValueRecord, LeaseRecord,
    NamespaceRecord, OutboxId, OutboxRecord, RunRecord, SearchScan, SettledEvent, StoreError, TapeRecord, TapeSlice,
    TextSearch,
};

/// The journal of a host: the only place it writes to.
///
/// `commit` returns when what the batch [promises](crate::Promise) holds: mostly that it is durable. Reads may see it before
/// that: whoever tells somebody outside what they read makes sure of it first, with an empty durable batch. Every
/// implementation passes the same conformance suite.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies a batch, whole or not at all. Appended entries get the id after their tape's head.
    async fn commit(&self, batch: Batch) -> Result<CommitReceipt, StoreError>;

    /// Returns when nothing can be written any more until the store is opened anew, and why.
    async fn wait_for_failure(&self) -> StoreError {
        std::future::pending().await
    }

    /// A tape, if it is known.
    async fn tape(&self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError>;

    /// Every tape, by name.
    async fn tapes(&self) -> Result<Vec<TapeRecord>, StoreError>;

    /// Entries of a tape as they stand in its own rows: of every generation, and without a fork's parent. A tape that is not known has none.
    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError>;

    /// What a search finds in a slice of a tape's own rows, in its order and up to its limit: what [`Search::finds`]
    /// says of every entry that [`Store::read`] gives. A store with an index may come to the same by a shorter way.
    async fn search(&self, tape: &TapeName, slice: &TapeSlice, search: &TextSearch) -> Result<Vec<Entry>, StoreError> {
        search_by_scan(self, tape, slice, search).await
    }

    /// An accepted event.
    async fn inbox_record(&self, key: &EventKey) -> Result<Option<InboxRecord>, StoreError>;

    /// The events of a tape, or of all, that have not ended; in the order of their entries.
    async fn in_flight_events(&self, tape: Option<&TapeName>) -> Result<Vec<InFlightEvent>, StoreError>;

    /// Every event that has ended.
    async fn settled_events(&self) -> Result<Vec<SettledEvent>, StoreError>;

    /// A run.
    async fn run(&self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError>;

    /// The newest runs first.
    async fn runs(&self, limit: usize) -> Result<Vec<RunRecord>, StoreError>;

    /// The runs that have not ended, oldest first.
    async fn open_runs(&self) -> Result<Vec<RunRecord>, StoreError>;

    /// The outbox rows that wait to be sent, in order.
    async fn pending_outbound(&self) -> Result<Vec<OutboxRecord>, StoreError>;

    /// The first of those messages that wait, go to the chat of this one, and were staged before its row and after another:
    /// no more than so many.
    async fn pending_outbound_before(
        &self,
        id: OutboxId,
        message: &OutboundMessage,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let is_before = |row: &OutboxRecord| {
            let is_between = after < row.id && row.id < id;
            is_between && row.message.channel == message.channel && row.message.chat_id == message.chat_id
        };
        Ok(self.pending_outbound().await?.into_iter().filter(is_before).take(limit).collect())
    }

    /// The outbox rows of an event, in order.
    async fn outbox_records(&self, event: &EventKey) -> Result<Vec<OutboxRecord>, StoreError>;

    /// A content by its hash.
    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError>;

    /// The state of a tape's session.
    async fn state(&self, tape: &TapeName) -> Result<JsonObject, StoreError>;

    /// A value that is kept under a key of a space.
    async fn key_value(&self, space: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError>;

    /// The values of a space after a key, by key, at most this many.
    async fn key_values(
        &self,
        space: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<KeyValueRecord>, StoreError>;

    /// A space, if something was ever kept in it.
    async fn namespace(&self, space: &str) -> Result<Option<NamespaceRecord>, StoreError>;

    /// The spaces whose names begin so, by name.
    async fn namespaces(&self, prefix: &str) -> Result<Vec<NamespaceRecord>, StoreError>;

    /// The identity of a workspace, by its resolved path.
    async fn workspace(&self, path: &str) -> Result<Option<WorkspaceId>, StoreError>;

    /// The lease of a tape, if it ever had one.
    async fn lease(&self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError>;

    /// Looks for damage: ids out of order, entries that cannot be read, heads that do not fit.
    async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError>;
}

/// What a search finds when every entry of a slice is read.
pub async fn search_by_scan<S: Store + ?Sized>(
    store: &S,
    tape: &TapeName,
    slice: &TapeSlice,
    search: &TextSearch,
) -> Result<Vec<Entry>, StoreError> {
    let mut scan = SearchScan::new(search, slice);
    while let Some(page) = scan.next_page() {
        scan.push_page(store.read(tape, &page).await?);
    }
    Ok(scan.matches())
}

/// Another place to keep entries, as a plugin provides it.
///
/// The host commits to its [`Store`] first, hands the entries over right after, and reads both until then. A tape
/// store needs to keep no more than what it was given.
#[async_trait]
pub trait TapeStore: Send + Sync + 'static {
    /// Keeps entries of a tape. The same entry may come again after a crash: an id that is there already is skipped.
    async fn append(&self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError>;

    /// Entries of a tape; a tape that is not known has none. [`Slice::of`] answers for a store that has them in memory.
    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError>;

    /// Every tape it keeps.
    async fn tapes(&self) -> Result<Vec<TapeName>, StoreError>;

    /// Looks for damage.
    async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        Ok(Vec::new())
    }

    /// Called when the running scope ends.
    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
