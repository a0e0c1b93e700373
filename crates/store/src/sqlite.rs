//! Journal in one `SQLite` file, the default store.
//!
//! # Design
//!
//! - Writes go through one thread ([`writer`]) that commits waiting batches as a group and shares one sync of the log
//!   among them ([`wal_sync`]).
//! - Reads use a small pool of read-only connections ([`reader_pool`]) and never wait for a writer (WAL mode).
//! - The tables and their migrations are in [`schema`]; the rules of a batch are in `capstan_tape::rules` and see the
//!   tables as [`sql_rows`].
//! - Every entry has a hash over the entry before it ([`chain`]).
//! - Full-text search has an index that is derived from the entries and updated by searches, not by writes
//!   ([`search`]).

mod backup;
mod chain;
mod columns;
mod commit_witness;
mod copied_work;
mod encoded_batch;
mod error;
mod fail_point;
mod file_guard;
mod high_water_mark;
mod in_flight;
mod key_value;
mod lock_probe;
mod log_guard;
mod payload;
mod queries;
mod reader;
mod reader_pool;
mod reader_threads;
mod replacement;
mod restoration;
mod row_cache;
mod schema;
mod search;
mod slice_query;
mod snapshot;
mod sql_rows;
mod statement_cache;
mod verification;
mod version_copy;
mod wal_sync;
mod writer;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use capstan_protocol::{BlobHash, EntryId, EventKey, JsonObject, OutboundMessage, RunId, TapeName, WorkspaceId};
use capstan_tape::{
    Batch, BlobStore, ChainLink, CommitReceipt, Entry, InFlightEvent, InboxRecord, InboxStore, IntegrityProblem,
    JournalStore, KeyValueRecord, KeyValueStore, LeaseRecord, LeaseStore, LedgerStore, NamespaceRecord, OutboxId,
    OutboxRecord, OutboxStore, RunRecord, SettledEvent, StoreError, TapeRecord, TapeSlice, TextSearch,
};
use rusqlite::Connection;

pub use backup::{back_up_database, copy_database};
pub use high_water_mark::{HighWaterMark, StateSetback};
pub use lock_probe::is_database_locked;
use reader_pool::ReaderPool;
pub use replacement::{DatabaseSummary, check_database_file};
pub use restoration::{UnfinishedWork, replace_database, restore_database};
use search::{EntrySearchRequest, SearchEngine};
pub use snapshot::DeadLetters;
pub use version_copy::VersionCopy;
use writer::{PreparedBatch, WriteJob, WriterThread};

/// Maximum number of entries that are read on the thread of the caller.
const MAX_INLINE_READ_ENTRIES: usize = 32;

/// Journal in one `SQLite` file, which several processes may have open at once.
///
/// Writes go through one thread that shares each sync among all waiting batches. Reads have connections of their own
/// and never wait for a writer. Dropping the store writes the queued batches and joins the thread.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use capstan_store::SqliteStore;
/// use capstan_tape::TapeRepository;
///
/// let directory = tempfile::tempdir()?;
/// let store = SqliteStore::open(directory.path().join("capstan.db"))?;
/// let tapes = TapeRepository::new(Arc::new(store));
/// assert!(tapes.list().await?.is_empty());
/// # Ok(()) }
/// ```
pub struct SqliteStore {
    /// Dropped before the writer: the last connection to close must be one that can checkpoint the log.
    readers: ReaderPool,
    /// Connections that are in no transaction, for the integrity check.
    verification_readers: ReaderPool,
    /// The writer, or the reason why the store is read-only.
    writer: Result<WriterThread, StoreError>,
    search_engine: SearchEngine,
}

/// Options for opening a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Maximum time that the writer waits for another process that has locked the database.
    pub busy_timeout: Duration,
    /// Length of the log in pages from which it is checkpointed, which the writer waits for. Only the last state of
    /// each page is copied, so a longer log means fewer copies of pages that change often.
    pub wal_checkpoint_pages: u32,
    /// Interval between checks of a log that is much longer than that, because another program reads the database. It is
    /// truncated as soon as that program is done.
    pub log_check_interval: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            busy_timeout: schema::DEFAULT_BUSY_TIMEOUT,
            wal_checkpoint_pages: schema::DEFAULT_WAL_CHECKPOINT_PAGES,
            log_check_interval: schema::DEFAULT_LOG_CHECK_INTERVAL,
        }
    }
}

impl SqliteStore {
    /// Schema version that this program writes. An older database is migrated when it is opened.
    pub const SCHEMA_VERSION: u32 = schema::LATEST_VERSION;

    /// Opens a database, or creates it if the file does not exist; its directory must exist.
    ///
    /// Fails for a file of another program and for a file that a newer version of this program wrote.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens a database like [`SqliteStore::open`], with options.
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.as_ref().to_path_buf();
        let connection = schema::open_writer(&path, options)?;
        let writer = WriterThread::start(connection, path.clone(), options)?;
        let readers = ReaderPool::new(path);
        Ok(Self {
            verification_readers: readers.clone(),
            readers: match writer.weak_queue() {
                Some(queue) => readers.reporting_to(queue),
                None => readers,
            },
            writer: Ok(writer),
            search_engine: SearchEngine::default(),
        })
    }

    /// Opens an existing database, read-only if necessary.
    ///
    /// If the database cannot be written, because it is read-only or its disk is full, it can still be read, and every
    /// commit fails with that error. So can one of a newer schema, as far as this program knows its tables.
    pub fn open_with_read_only_fallback(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        match Self::open(&path) {
            Err(
                reason @ (StoreError::ReadOnly { .. }
                | StoreError::DiskFull { .. }
                | StoreError::NoInodes { .. }
                | StoreError::SchemaTooNew { .. }),
            ) => Ok(Self { writer: Err(reason), ..Self::open_snapshot(path)? }),
            opened => opened,
        }
    }
}

#[async_trait]
impl JournalStore for SqliteStore {
    async fn commit(&self, batch: Batch) -> Result<CommitReceipt, StoreError> {
        let writer = self.writer.as_ref().map_err(Clone::clone)?;
        let prepared = Box::new(PreparedBatch::new(batch));
        writer.submit(|reply| WriteJob::Batch(prepared, reply)).await?.result
    }

    async fn wait_for_failure(&self) -> StoreError {
        match &self.writer {
            Ok(writer) => writer.wait_for_failure().await,
            Err(_) => std::future::pending().await,
        }
    }

    async fn tape(&self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError> {
        let name = name.clone();
        self.readers.read_inline(move |connection| queries::tape(connection, &name)).await
    }

    async fn tape_page(&self, after: Option<&TapeName>, limit: usize) -> Result<Vec<TapeRecord>, StoreError> {
        let after = after.cloned();
        self.readers.read(move |connection| queries::tapes(connection, after.as_ref(), limit)).await
    }

    async fn tapes_with_entries(&self, after: Option<&TapeName>, limit: usize) -> Result<Vec<TapeName>, StoreError> {
        let after = after.cloned();
        self.readers.read(move |connection| queries::tapes_with_entries(connection, after.as_ref(), limit)).await
    }

    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        let (tape, slice) = (tape.clone(), slice.clone());
        if slice_query::is_bounded(&slice, MAX_INLINE_READ_ENTRIES) {
            let (tape, slice) = (tape.clone(), slice.clone());
            let read = move |connection: &Connection| queries::entries_if_small(connection, &tape, &slice);
            if let Some(entries) = self.readers.read_inline(read).await? {
                return Ok(entries);
            }
        }
        self.readers.read(move |connection| queries::entries(connection, &tape, &slice)).await
    }

    async fn search(&self, tape: &TapeName, slice: &TapeSlice, search: &TextSearch) -> Result<Vec<Entry>, StoreError> {
        let request = EntrySearchRequest { tape: tape.clone(), slice: slice.clone(), search: search.clone() };
        // Without a writer the index is not updated, and entries that it lacks are scanned.
        self.search_engine.search(&self.readers.without_reports(), self.writer.as_ref().ok(), request).await
    }

    async fn chain_link(&self, tape: &TapeName, up_to: EntryId) -> Result<Option<ChainLink>, StoreError> {
        let tape = tape.clone();
        self.readers.read(move |connection| chain::last_link(connection, tape.as_str(), up_to)).await
    }

    async fn chain_page(&self, tape: &TapeName, after: EntryId, limit: usize) -> Result<Vec<ChainLink>, StoreError> {
        let tape = tape.clone();
        self.readers.read(move |connection| chain::links(connection, &tape, after, limit)).await
    }

    async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        self.verification_readers.read(verification::find_problems).await
    }
}

#[async_trait]
impl LedgerStore for SqliteStore {
    async fn run(&self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        let run_id = run_id.clone();
        self.readers.read_inline(move |connection| queries::run(connection, &run_id)).await
    }

    async fn run_page(&self, before: Option<&RunId>, limit: usize) -> Result<Vec<RunRecord>, StoreError> {
        let before = before.cloned();
        self.readers.read(move |connection| queries::runs(connection, before.as_ref(), limit)).await
    }

    async fn open_run_page(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunRecord>, StoreError> {
        let after = after.cloned();
        self.readers.read(move |connection| queries::open_runs(connection, after.as_ref(), limit)).await
    }
}

#[async_trait]
impl InboxStore for SqliteStore {
    async fn inbox_record(&self, key: &EventKey) -> Result<Option<InboxRecord>, StoreError> {
        let key = key.clone();
        self.readers.read_inline(move |connection| queries::accepted_event(connection, &key)).await
    }

    async fn in_flight_event(&self, key: &EventKey) -> Result<Option<InFlightEvent>, StoreError> {
        let key = key.clone();
        self.readers.read_inline(move |connection| in_flight::find(connection, &key)).await
    }

    async fn in_flight_page(
        &self,
        tape: Option<&TapeName>,
        after: Option<&InFlightEvent>,
        limit: usize,
    ) -> Result<Vec<InFlightEvent>, StoreError> {
        let (tape, after) = (tape.cloned(), after.cloned());
        self.readers.read(move |connection| in_flight::list(connection, tape.as_ref(), after.as_ref(), limit)).await
    }

    async fn settled_page(&self, after: Option<&EventKey>, limit: usize) -> Result<Vec<SettledEvent>, StoreError> {
        let after = after.cloned();
        self.readers.read(move |connection| in_flight::list_settled(connection, after.as_ref(), limit)).await
    }
}

#[async_trait]
impl OutboxStore for SqliteStore {
    async fn pending_page(&self, after: OutboxId, limit: usize) -> Result<Vec<OutboxRecord>, StoreError> {
        self.readers.read(move |connection| queries::pending_outbound(connection, after, limit)).await
    }

    async fn pending_outbound_before(
        &self,
        before: OutboxId,
        message: &OutboundMessage,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let (channel, chat) = (message.channel.to_string(), message.chat_id.to_string());
        let read =
            move |connection: &_| queries::pending_outbound_before(connection, before, [&channel, &chat], after, limit);
        self.readers.read(read).await
    }

    async fn outbox_page(
        &self,
        event: &EventKey,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let event = event.clone();
        self.readers.read_inline(move |connection| queries::outbox(connection, &event, after, limit)).await
    }
}

#[async_trait]
impl KeyValueStore for SqliteStore {
    async fn key_value(&self, namespace: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError> {
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        self.readers.read_inline(move |connection| key_value::find(connection, &namespace, &key)).await
    }

    async fn key_value_page(
        &self,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<KeyValueRecord>, StoreError> {
        let (namespace, after) = (namespace.to_owned(), after.map(str::to_owned));
        self.readers.read(move |connection| key_value::list_page(connection, &namespace, after.as_deref(), limit)).await
    }

    async fn namespace(&self, namespace: &str) -> Result<Option<NamespaceRecord>, StoreError> {
        let namespace = namespace.to_owned();
        self.readers.read_inline(move |connection| key_value::find_namespace(connection, &namespace)).await
    }

    async fn namespace_page(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<NamespaceRecord>, StoreError> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let read = move |connection: &_| key_value::list_namespaces(connection, &prefix, after.as_deref(), limit);
        self.readers.read(read).await
    }

    async fn state(&self, tape: &TapeName) -> Result<JsonObject, StoreError> {
        let tape = tape.clone();
        self.readers.read_inline(move |connection| queries::state(connection, &tape)).await
    }

    async fn workspace(&self, path: &str) -> Result<Option<WorkspaceId>, StoreError> {
        let path = path.to_owned();
        self.readers.read_inline(move |connection| queries::workspace(connection, &path)).await
    }
}

#[async_trait]
impl LeaseStore for SqliteStore {
    async fn lease(&self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError> {
        let tape = tape.clone();
        self.readers.read_inline(move |connection| queries::lease(connection, &tape)).await
    }
}

#[async_trait]
impl BlobStore for SqliteStore {
    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        let hash = hash.clone();
        self.readers.read(move |connection| queries::blob(connection, &hash)).await
    }
}
