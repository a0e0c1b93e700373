//! Restoration of a database from a backup.
//!
//! # Steps
//!
//! 1. The backup is checked, and copied next to the database with its unfinished work marked.
//! 2. The content of the database is kept in a new file.
//! 3. The content is replaced by that of the copy, in one transaction under the exclusive lock. A database that is missing
//!    or too damaged for a transaction is replaced as a file, after its log was set aside.
//! 4. The high-water mark is set to the restored number of entries.
//!
//! A process that is killed before the end of step 3 leaves the old content, and afterwards the new one. Killed before step
//! 4 it leaves the old mark, so that the next process and `capstan doctor` report that the database went back.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use capstan_tape::StoreError;
use rusqlite::Connection;

use super::backup::{copy_connection, sync_directory};
use super::copied_work::{give_up_copied_work, mark_copied_work, unmark_copied_work};
use super::error::store_error;
use super::fail_point::FailPoint;
use super::file_guard::sidecar;
use super::high_water_mark::{HighWaterMark, count_entries};
use super::reader::open_reader;
use super::replacement::{check_database_file, keep_content, lock_exclusively, write_content};
use super::schema::{check_version, migrate};

/// Suffixes of the files that `SQLite` keeps next to a database.
const SIDECAR_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Fate of the events in flight and the pending messages of a restored backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnfinishedWork {
    /// Events fail with a notice, and messages are held: they may have been completed after the backup.
    GiveUp,
    /// Events and messages are recovered as after a crash, which may repeat effects.
    Resume,
}

/// Replaces a database by a backup, and keeps the replaced content in the new file `kept`, if there was a database.
///
/// Fails with [`StoreError::Busy`], without any change, while another connection has the database open. A backup of an
/// older schema is migrated when the database is opened next. Blocks until the new content is durable.
pub fn restore_database(
    database: impl AsRef<Path>,
    backup: impl AsRef<Path>,
    kept: impl AsRef<Path>,
    work: UnfinishedWork,
) -> Result<(), StoreError> {
    let (database, backup, kept) = (database.as_ref(), backup.as_ref(), kept.as_ref());
    check_database_file(backup)?;
    let copy = RestorationCopy::create(database, backup, |connection| prepare_work(connection, work))?;
    let point = FailPoint::named("restore-mark");
    if let Some(mut connection) = lock_existing(database)? {
        keep_content(&connection, kept)?;
        write_content(&copy.path, &mut connection, database)?;
        // Under the lock: the next process to open the database finds the new mark.
        point.before_commit();
        copy.set_high_water_mark(database)?;
        connection.close().map_err(|(_, error)| store_error(database, &error))?;
    } else {
        replace_file(database, &copy.path, kept)?;
        point.before_commit();
        copy.set_high_water_mark(database)?;
    }
    point.after_commit();
    Ok(())
}

/// Replaces the content of a database by that of `source`, the copy of an older schema, and keeps the replaced content in
/// the new file `kept`. Work that was unfinished in the copy may have been completed since: no version repeats it.
///
/// Fails with [`StoreError::Busy`], without any change, while another connection has the database open. Blocks until the
/// new content is durable.
pub fn replace_database(
    database: impl AsRef<Path>,
    source: impl AsRef<Path>,
    kept: impl AsRef<Path>,
) -> Result<(), StoreError> {
    let (database, source, kept) = (database.as_ref(), source.as_ref(), kept.as_ref());
    check_database_file(source)?;
    let copy = RestorationCopy::create(database, source, |connection| {
        // The first version has no owners; its events are recovered as after a crash.
        give_up_copied_work(connection).map(drop).map_err(|error| store_error(source, &error))
    })?;
    let failed = |error: rusqlite::Error| store_error(database, &error);
    let mut connection = lock_exclusively(database).map_err(failed)?;
    keep_content(&connection, kept)?;
    write_content(&copy.path, &mut connection, database)?;
    // Closing the last connection writes the log to the database and syncs it.
    connection.close().map_err(|(_, error)| failed(error))
}

/// Copy of a backup next to the database that it replaces. Dropping it removes the file.
struct RestorationCopy {
    path: PathBuf,
    /// Number of entries of the copy.
    entries: u64,
}

impl RestorationCopy {
    fn create(
        database: &Path,
        backup: &Path,
        prepare: impl FnOnce(&mut Connection) -> Result<(), StoreError>,
    ) -> Result<Self, StoreError> {
        let name = database.file_name().unwrap_or_default().to_string_lossy();
        // `capstan doctor --repair` recognises this name, should the process be killed.
        let path = database.with_file_name(format!(".{name}.restore.capstan-{}.new", std::process::id()));
        let source = open_reader(backup)?;
        check_version(&source, backup)?;
        let mut copy = Self { path, entries: 0 };
        copy.remove();
        let point = FailPoint::named("restore-copy");
        point.before_commit();
        let entries = count_entries(&source).map_err(|error| store_error(backup, &error))?;
        copy_connection(&source, &copy.path, prepare)?;
        point.after_commit();
        copy.entries = entries;
        Ok(copy)
    }

    fn set_high_water_mark(&self, database: &Path) -> Result<(), StoreError> {
        HighWaterMark { entries: self.entries, ..HighWaterMark::default() }.store(database)
    }

    fn remove(&self) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            // If it cannot be removed, the next repair removes it.
            let _ignored = std::fs::remove_file(sidecar(&self.path, suffix));
        }
    }
}

impl Drop for RestorationCopy {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Decides about the unfinished work of a copy. A schema without owners is migrated first.
fn prepare_work(connection: &mut Connection, work: UnfinishedWork) -> Result<(), StoreError> {
    let path = connection.path().map(PathBuf::from).unwrap_or_default();
    let set = |connection: &Connection| match work {
        UnfinishedWork::GiveUp => mark_copied_work(connection),
        UnfinishedWork::Resume => unmark_copied_work(connection),
    };
    let failed = |error: rusqlite::Error| store_error(&path, &error);
    if !set(connection).map_err(failed)? {
        migrate(connection, &path)?;
        set(connection).map_err(failed)?;
    }
    Ok(())
}

/// Locks the database; `None` if there is none, or if it is too damaged to be locked and read.
fn lock_existing(database: &Path) -> Result<Option<Connection>, StoreError> {
    match database.try_exists() {
        Ok(false) => return Ok(None),
        Ok(true) => {}
        Err(error) => return Err(StoreError::io(format!("open {}", database.display()), error)),
    }
    match lock_exclusively(database) {
        Ok(connection) if is_readable(&connection) => Ok(Some(connection)),
        // Closing the connection could apply a log to the damaged file, which is kept as it is.
        Ok(connection) => {
            connection
                .set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
                .map_err(|error| store_error(database, &error))?;
            Ok(None)
        }
        Err(error) => match store_error(database, &error) {
            StoreError::Corrupt { .. } => Ok(None),
            other => Err(other),
        },
    }
}

/// Returns true if the tables can be read, so that the content can be copied page by page.
fn is_readable(connection: &Connection) -> bool {
    let page_count = connection.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0));
    let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
    page_count.is_ok() && tables.is_ok()
}

/// Replaces the file of a database by the copy. The replaced file and its log are kept.
fn replace_file(database: &Path, copy: &Path, kept: &Path) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| StoreError::io(format!("replace {}", database.display()), error);
    // The log is next to the file that symbolic links lead to.
    let file = database.canonicalize().unwrap_or_else(|_| database.to_path_buf());
    let ignore_missing = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let point = FailPoint::named("keep-replaced");
    point.before_commit();
    ignore_missing(std::fs::hard_link(&file, kept)).and_then(|()| sync_directory(&file)).map_err(failed)?;
    point.after_commit();
    // First the log: `SQLite` would apply it to the new file.
    for suffix in SIDECAR_SUFFIXES {
        ignore_missing(std::fs::rename(sidecar(&file, suffix), sidecar(kept, suffix))).map_err(failed)?;
    }
    sync_directory(&file).map_err(failed)?;
    let point = FailPoint::named("replace-content");
    point.before_commit();
    std::fs::rename(copy, &file).and_then(|()| sync_directory(&file)).map_err(failed)?;
    point.after_commit();
    Ok(())
}
