//! The default journal: one `SQLite` file.

mod backup;
mod columns;
mod error;
#[cfg_attr(not(feature = "fail-points"), path = "sqlite/no_fail_point.rs")]
mod fail_point;
mod flight;
mod kept;
mod known;
mod locked;
mod log;
mod payload;
mod read;
mod reader;
mod readers;
mod rows;
mod schema;
mod search;
mod slice;
mod snapshot;
mod statements;
mod verify;
mod writer;
mod written;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use capstan_protocol::{BlobHash, EventKey, Map, Outbound, RunId, TapeName, WorkspaceId};
use capstan_tape::{
    AcceptedRecord, Batch, Committed, Entry, InFlight, Kept, LeaseRecord, OutboxId, OutboxRecord, Problem, RunRecord,
    Search, Settled, Slice, SpaceRecord, Store, StoreError, TapeRecord,
};
use rusqlite::Connection;

use readers::Readers;
use search::{Searches, Wanted};
pub use snapshot::DeadLetters;
use writer::Writer;

/// So many small entries are read on the thread of whoever asks.
const FEW: usize = 32;

/// A journal in one `SQLite` file, which several processes may have open at once.
///
/// Writes go through one thread that shares each flush among all batches that wait; reads have connections of their
/// own and never wait for a writer. Dropping it writes what still waits and joins the thread.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use capstan_store::SqliteStore;
/// use capstan_tape::Tapes;
///
/// let directory = tempfile::tempdir()?;
/// let store = SqliteStore::open(directory.path().join("capstan.db"))?;
/// let tapes = Tapes::new(Arc::new(store));
/// assert!(tapes.list().await?.is_empty());
/// # Ok(()) }
/// ```
pub struct SqliteStore {
    /// Closed before the writer: the last connection to close must be one that can fold the log into the file.
    readers: Readers,
    /// Who looks for damage: a connection that is in no transaction.
    verifiers: Readers,
    /// Or why nothing is written.
    writer: Result<Writer, StoreError>,
    searches: Searches,
}

/// How a database is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqliteOptions {
    /// How long a writer waits for another process that keeps the database locked, before it gives up.
    pub busy_timeout: Duration,
    /// From how many pages on the log is folded into the file, which the writer waits for. Of pages that change all the
    /// time only the last state is: the longer the log, the fewer pages are copied.
    pub log_pages: u32,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { busy_timeout: schema::BUSY_TIMEOUT, log_pages: schema::LOG_PAGES }
    }
}

impl SqliteStore {
    /// The version of the tables that this program writes. An older database is brought to it when it is opened.
    pub const SCHEMA_VERSION: u32 = schema::KNOWN_VERSION;

    /// Opens a database, or makes one where there is none; its directory must exist.
    ///
    /// A file of another program is refused, and so is one that a newer version of this program wrote.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens a database like [`SqliteStore::open`], with options.
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.as_ref().to_path_buf();
        let connection = schema::open_writer(&path, options)?;
        let writer = Writer::start(connection, path.clone(), options)?;
        let readers = Readers::new(path);
        Ok(Self { verifiers: readers.clone(), readers, writer: Ok(writer), searches: Searches::default() })
    }

    /// Opens a database that is there, for somebody who may only want to read it.
    ///
    /// Where it cannot be written, because it is read-only or its disk is full, it can be read all the same, and every
    /// commit is refused for that reason.
    pub fn open_to_read(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        match Self::open(&path) {
            Err(reason @ (StoreError::ReadOnly { .. } | StoreError::Full { .. })) => {
                Ok(Self { writer: Err(reason), ..Self::snapshot(path)? })
            }
            opened => opened,
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        self.writer.as_ref().map_err(Clone::clone)?.commit(batch).await
    }

    async fn broken(&self) -> StoreError {
        match &self.writer {
            Ok(writer) => writer.broken().await,
            Err(_) => std::future::pending().await,
        }
    }

    async fn tape(&self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError> {
        let name = name.clone();
        self.readers.look(move |connection| read::tape(connection, &name)).await
    }

    async fn tapes(&self) -> Result<Vec<TapeRecord>, StoreError> {
        self.readers.read(read::tapes).await
    }

    async fn read(&self, tape: &TapeName, slice: &Slice) -> Result<Vec<Entry>, StoreError> {
        let (tape, slice) = (tape.clone(), slice.clone());
        if slice::is_short(&slice, FEW) {
            let (tape, slice) = (tape.clone(), slice.clone());
            let read = move |connection: &Connection| read::small_entries(connection, &tape, &slice);
            if let Some(entries) = self.readers.look(read).await? {
                return Ok(entries);
            }
        }
        self.readers.read(move |connection| read::entries(connection, &tape, &slice)).await
    }

    async fn search(&self, tape: &TapeName, slice: &Slice, search: &Search) -> Result<Vec<Entry>, StoreError> {
        let wanted = Wanted { tape: tape.clone(), slice: slice.clone(), search: search.clone() };
        // Where nothing is written, what the index lacks is read.
        self.searches.search(&self.readers, self.writer.as_ref().ok(), wanted).await
    }

    async fn accepted(&self, key: &EventKey) -> Result<Option<AcceptedRecord>, StoreError> {
        let key = key.clone();
        self.readers.look(move |connection| read::accepted(connection, &key)).await
    }

    async fn in_flight(&self, tape: Option<&TapeName>) -> Result<Vec<InFlight>, StoreError> {
        let tape = tape.cloned();
        self.readers.read(move |connection| flight::in_flight(connection, tape.as_ref())).await
    }

    async fn settled(&self) -> Result<Vec<Settled>, StoreError> {
        self.readers.read(flight::settled).await
    }

    async fn run(&self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        let run_id = run_id.clone();
        self.readers.look(move |connection| read::run(connection, &run_id)).await
    }

    async fn runs(&self, limit: usize) -> Result<Vec<RunRecord>, StoreError> {
        self.readers.read(move |connection| read::runs(connection, limit)).await
    }

    async fn running(&self) -> Result<Vec<RunRecord>, StoreError> {
        self.readers.read(read::running).await
    }

    async fn waiting(&self) -> Result<Vec<OutboxRecord>, StoreError> {
        self.readers.read(read::waiting).await
    }

    async fn waiting_before(
        &self,
        id: OutboxId,
        message: &Outbound,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let (channel, chat) = (message.channel.to_string(), message.chat_id.to_string());
        let read = move |connection: &_| read::waiting_before(connection, id, [&channel, &chat], after, limit);
        self.readers.read(read).await
    }

    async fn outbox(&self, event: &EventKey) -> Result<Vec<OutboxRecord>, StoreError> {
        let event = event.clone();
        self.readers.look(move |connection| read::outbox(connection, &event)).await
    }

    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        let hash = hash.clone();
        self.readers.read(move |connection| read::blob(connection, &hash)).await
    }

    async fn state(&self, tape: &TapeName) -> Result<Map, StoreError> {
        let tape = tape.clone();
        self.readers.look(move |connection| read::state(connection, &tape)).await
    }

    async fn kept(&self, space: &str, key: &str) -> Result<Option<Kept>, StoreError> {
        let (space, key) = (space.to_owned(), key.to_owned());
        self.readers.look(move |connection| kept::one(connection, &space, &key)).await
    }

    async fn kept_in(&self, space: &str, after: Option<&str>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        let (space, after) = (space.to_owned(), after.map(str::to_owned));
        self.readers.read(move |connection| kept::page(connection, &space, after.as_deref(), limit)).await
    }

    async fn space(&self, space: &str) -> Result<Option<SpaceRecord>, StoreError> {
        let space = space.to_owned();
        self.readers.look(move |connection| kept::space(connection, &space)).await
    }

    async fn spaces(&self, prefix: &str) -> Result<Vec<SpaceRecord>, StoreError> {
        let prefix = prefix.to_owned();
        self.readers.read(move |connection| kept::spaces(connection, &prefix)).await
    }

    async fn workspace(&self, path: &str) -> Result<Option<WorkspaceId>, StoreError> {
        let path = path.to_owned();
        self.readers.look(move |connection| read::workspace(connection, &path)).await
    }

    async fn lease(&self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError> {
        let tape = tape.clone();
        self.readers.look(move |connection| read::lease(connection, &tape)).await
    }

    async fn verify(&self) -> Result<Vec<Problem>, StoreError> {
        self.verifiers.read(verify::problems).await
    }
}
