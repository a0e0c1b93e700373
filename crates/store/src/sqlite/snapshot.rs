//! A database as it was at one moment, to be looked at.

use std::path::Path;

use capstan_protocol::Timestamp;
use capstan_tape::{OutboxRecord, StoreError};
use rusqlite::{Connection, Result};

use super::SqliteStore;
use super::backup::copy_pages;
use super::columns::{timestamp_column, u64_column};
use super::error::store_error;
use super::queries::{OUTBOX_COLUMNS, outbox_row};
use super::reader::open_reader;
use super::reader_pool::ReaderPool;
use super::schema::{LATEST_VERSION, check_version, configure_connection, migrate};
use super::search::SearchEngine;

/// The messages that were given up, and of which nobody has taken note.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetters {
    /// How many there are.
    pub count: u64,
    /// When the oldest of them was staged.
    pub oldest: Option<Timestamp>,
    /// The newest of them, newest first.
    pub newest: Vec<OutboxRecord>,
}

impl SqliteStore {
    /// Opens a database as it is now: others may go on writing to it, and this one does not see it.
    ///
    /// Nothing is written. A database of an older version stays as it is: a copy of it, private to this process and
    /// gone with it, is brought to the newest version and looked at in its place.
    pub fn open_snapshot(path: impl AsRef<Path>) -> std::result::Result<Self, StoreError> {
        let path = path.as_ref().to_path_buf();
        let writer = Err(StoreError::io("write to the database", "it was opened to be looked at only"));
        let failed = |error: rusqlite::Error| store_error(&path, &error);
        let source = open_reader(&path)?;
        pin_read_transaction(&source).map_err(failed)?;
        if check_version(&source, &path)? < LATEST_VERSION as usize {
            let readers = ReaderPool::with_connection(migrated_copy(&source, &path)?, path);
            return Ok(Self {
                verification_readers: readers.clone(),
                readers,
                writer,
                search_engine: SearchEngine::default(),
            });
        }
        let verifiers = ReaderPool::new(path.clone());
        Ok(Self {
            readers: ReaderPool::with_connection(source, path),
            verification_readers: verifiers,
            writer,
            search_engine: SearchEngine::default(),
        })
    }

    /// The version of the tables in a database, which is left as it is; nothing where there is no file.
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

    /// The messages that were given up and not noted, and the newest of them, at most this many.
    pub async fn dead_letters(&self, limit: usize) -> std::result::Result<DeadLetters, StoreError> {
        self.readers.read(move |connection| read_dead_letters(connection, limit)).await
    }
}

/// Makes every read of a connection see what it sees now.
fn pin_read_transaction(connection: &Connection) -> Result<()> {
    connection.execute_batch("BEGIN")?;
    // The transaction begins with its first read.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// A copy in a temporary file without a name, brought to the newest version.
fn migrated_copy(source: &Connection, path: &Path) -> std::result::Result<Connection, StoreError> {
    let failed = |error: rusqlite::Error| store_error(path, &error);
    let mut copy = Connection::open("").map_err(failed)?;
    configure_connection(&copy).map_err(failed)?;
    copy_pages(source, &mut copy).map_err(failed)?;
    migrate(&mut copy, path)?;
    Ok(copy)
}

fn read_dead_letters(connection: &Connection, limit: usize) -> Result<DeadLetters> {
    const UNDELIVERED_CONDITION: &str = "json_extract(status, '$.status') = 'undelivered'";
    let sql = format!("SELECT count(*), min(id) FROM outbox WHERE {UNDELIVERED_CONDITION}");
    let (count, first) =
        connection.query_row(&sql, [], |row| Ok((u64_column(row, 0)?, row.get::<_, Option<i64>>(1)?)))?;
    let oldest = match first {
        None => None,
        Some(id) => {
            Some(connection.query_row("SELECT at FROM outbox WHERE id = ?1", [id], |row| timestamp_column(row, 0))?)
        }
    };
    let sql = format!("SELECT {OUTBOX_COLUMNS} FROM outbox WHERE {UNDELIVERED_CONDITION} ORDER BY id DESC LIMIT ?1");
    let mut statement = connection.prepare(&sql)?;
    let newest = statement.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], outbox_row)?.collect::<Result<_>>()?;
    Ok(DeadLetters { count, oldest, newest })
}
