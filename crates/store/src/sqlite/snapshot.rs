//! Read-only snapshots of a database.

use std::path::Path;

use capstan_protocol::Timestamp;
use capstan_tape::{OutboxRecord, StoreError};
use rusqlite::{Connection, Result};

use super::SqliteStore;
use super::backup::copy_pages;
use super::columns::{timestamp_column, u64_column};
use super::error::store_error;
use super::high_water_mark::count_entries;
use super::queries::{OUTBOX_COLUMNS, outbox_row};
use super::reader::open_reader;
use super::reader_pool::ReaderPool;
use super::schema::{LATEST_VERSION, check_version, configure_connection, migrate, read_version};
use super::search::SearchEngine;

/// Messages that are not sent any more, undelivered or held, and that no operator has acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetters {
    /// Number of messages.
    pub count: u64,
    /// Time at which the oldest was staged.
    pub oldest: Option<Timestamp>,
    /// Newest messages, newest first.
    pub newest: Vec<OutboxRecord>,
}

impl SqliteStore {
    /// Opens a snapshot of a database: later writes of other processes are not visible in it.
    ///
    /// Writes nothing. A database with an older schema is not changed: a temporary copy, private to this process, is
    /// migrated and read instead. One with a newer schema is read as far as this program knows its tables.
    pub fn open_snapshot(path: impl AsRef<Path>) -> std::result::Result<Self, StoreError> {
        let path = path.as_ref().to_path_buf();
        let writer = Err(StoreError::io("write to the database", "it was opened as a read-only snapshot"));
        let failed = |error: rusqlite::Error| store_error(&path, &error);
        let source = open_reader(&path)?;
        pin_read_transaction(&source).map_err(failed)?;
        if read_version(&source, &path)? < LATEST_VERSION {
            let readers = ReaderPool::with_connection(migrated_copy(&source, &path)?, path);
            return Ok(Self {
                verification_readers: readers.clone(),
                readers,
                writer,
                search_engine: SearchEngine::default(),
            });
        }
        let verification_readers = ReaderPool::new(path.clone());
        let readers = ReaderPool::with_connection(source, path);
        Ok(Self { readers, verification_readers, writer, search_engine: SearchEngine::default() })
    }

    /// Counts the entries; comparable with the [`HighWaterMark`](super::HighWaterMark) of the database.
    pub async fn count_entries(&self) -> std::result::Result<u64, StoreError> {
        self.readers.read(count_entries).await
    }

    /// Reads the schema version of a database without changing it; `None` if there is no file.
    pub fn read_schema_version(path: impl AsRef<Path>) -> std::result::Result<Option<u32>, StoreError> {
        let path = path.as_ref();
        match path.try_exists() {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(error) => return Err(StoreError::io(format!("open {}", path.display()), error)),
        }
        let version = check_version(&open_reader(path)?, path)?;
        Ok(u32::try_from(version).ok())
    }

    /// Reads the undelivered messages: their number, and the newest `limit` of them.
    pub async fn dead_letters(&self, limit: usize) -> std::result::Result<DeadLetters, StoreError> {
        self.readers.read(move |connection| read_letters(connection, "undelivered", limit)).await
    }

    /// Reads the messages that are held for the operator: their number, and the newest `limit` of them.
    pub async fn held_messages(&self, limit: usize) -> std::result::Result<DeadLetters, StoreError> {
        self.readers.read(move |connection| read_letters(connection, "held", limit)).await
    }
}

/// Begins a transaction, so that every read of the connection sees the same state.
fn pin_read_transaction(connection: &Connection) -> Result<()> {
    connection.execute_batch("BEGIN")?;
    // The snapshot is taken by the first read of the transaction.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Migrated copy in an unnamed temporary file.
fn migrated_copy(source: &Connection, path: &Path) -> std::result::Result<Connection, StoreError> {
    let failed = |error: rusqlite::Error| store_error(path, &error);
    let mut copy = Connection::open("").map_err(failed)?;
    configure_connection(&copy).map_err(failed)?;
    copy_pages(source, &mut copy).map_err(failed)?;
    migrate(&mut copy, path)?;
    Ok(copy)
}

/// Reads the messages with this status, a constant of this module.
fn read_letters(connection: &Connection, status: &'static str, limit: usize) -> Result<DeadLetters> {
    // A literal, so that the partial index on this status applies.
    let condition = format!("json_extract(status, '$.status') = '{status}'");
    let sql = format!("SELECT count(*), min(id) FROM outbox WHERE {condition}");
    let (count, first) =
        connection.query_row(&sql, [], |row| Ok((u64_column(row, 0)?, row.get::<_, Option<i64>>(1)?)))?;
    let oldest = match first {
        None => None,
        Some(id) => {
            Some(connection.query_row("SELECT at FROM outbox WHERE id = ?1", [id], |row| timestamp_column(row, 0))?)
        }
    };
    let sql = format!("SELECT {OUTBOX_COLUMNS} FROM outbox WHERE {condition} ORDER BY id DESC LIMIT ?1");
    let mut statement = connection.prepare(&sql)?;
    let newest = statement.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], outbox_row)?.collect::<Result<_>>()?;
    Ok(DeadLetters { count, oldest, newest })
}
