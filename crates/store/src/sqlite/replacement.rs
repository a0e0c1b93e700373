//! Replacement of the content of a database by that of another file.
//!
//! # Atomicity
//!
//! The new content is one transaction of the database that it replaces, so a process that is killed leaves the old
//! content or the new one. The exclusive lock is held from before the old content is copied until after the
//! transaction: no process can write in between, and none has the database open.

use std::path::Path;

use capstan_tape::StoreError;
use rusqlite::{Connection, OpenFlags};

use super::backup::{copy_connection, copy_pages, sync_directory};
use super::error::store_error;
use super::fail_point::FailPoint;
use super::file_guard::sidecar;
use super::high_water_mark::count_entries;
use super::reader::open_reader;
use super::schema::{configure_connection, is_busy, read_version};
use super::version_copy::integrity_report;

/// Size of the content of a database, to compare two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseSummary {
    /// Schema version.
    pub version: u32,
    /// Number of tapes.
    pub tapes: u64,
    /// Number of entries that were appended to all tapes.
    pub entries: u64,
    /// Number of accepted events.
    pub events: u64,
}

impl DatabaseSummary {
    /// Reads the summary of a database, which may have a newer schema than this program, without changing it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let failed = |error: rusqlite::Error| store_error(path, &error);
        let connection = open_reader(path)?;
        let count =
            |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned).map_err(failed);
        Ok(Self {
            version: read_version(&connection, path)?,
            tapes: count("SELECT count(*) FROM tapes")?,
            entries: count_entries(&connection).map_err(failed)?,
            events: count("SELECT count(*) FROM inbox")?,
        })
    }
}

/// Checks the file of a database for damage, without changing it.
pub fn check_database_file(path: impl AsRef<Path>) -> Result<(), StoreError> {
    let path = path.as_ref();
    let connection = open_reader(path)?;
    read_version(&connection, path)?;
    match integrity_report(&connection).map_err(|error| store_error(path, &error))?.as_str() {
        "ok" => Ok(()),
        damage => Err(StoreError::corrupt_file(path.display().to_string(), damage)),
    }
}

/// Replaces the content of a locked database in one transaction, which is durable when the function returns.
pub(super) fn write_content(source: &Path, connection: &mut Connection, database: &Path) -> Result<(), StoreError> {
    let point = FailPoint::named("replace-content");
    point.before_commit();
    let new_content = open_reader(source)?;
    copy_pages(&new_content, connection).map_err(|error| store_error(database, &error))?;
    point.after_commit();
    Ok(())
}

/// Opens a database that no other connection has open, and locks it until the connection is closed.
pub(super) fn lock_exclusively(database: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags)?;
    configure_connection(&connection)?;
    connection.busy_timeout(std::time::Duration::ZERO)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // The lock is taken by the first transaction and kept after its end.
    match connection.execute_batch("BEGIN EXCLUSIVE; COMMIT") {
        Err(error) if is_busy(&error) => Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
            Some("another process has the database open".to_owned()),
        )),
        locked => locked.map(|()| connection),
    }
}

/// Copies the content of a locked database to a new file, which gets its name when it is complete.
pub(super) fn keep_content(connection: &Connection, kept: &Path) -> Result<(), StoreError> {
    let name = kept.file_name().unwrap_or_default().to_string_lossy();
    let temporary = kept.with_file_name(format!(".{name}.capstan-{}.new", std::process::id()));
    let point = FailPoint::named("keep-replaced");
    point.before_commit();
    let written = copy_connection(connection, &temporary, |_| Ok(())).and_then(|()| {
        // Unlike a rename, a link never replaces a file.
        std::fs::hard_link(&temporary, kept)
            .and_then(|()| std::fs::remove_file(&temporary))
            .and_then(|()| sync_directory(kept))
            .map_err(|error| StoreError::io(format!("write {}", kept.display()), error))
    });
    if written.is_err() {
        for suffix in ["", "-journal"] {
            // The copy is incomplete; if it cannot be removed either, the next repair removes it.
            let _ignored = std::fs::remove_file(sidecar(&temporary, suffix));
        }
    }
    point.after_commit();
    written
}
