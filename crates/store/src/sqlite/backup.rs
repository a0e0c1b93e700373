//! Copies of a database that is in use.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use capstan_tape::StoreError;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::copied_work::mark_copied_work;
use super::error::{classify_write_error, store_error};
use super::reader::open_reader;
use super::schema::{LATEST_VERSION, read_version};

/// Maximum time that a copy waits for an exclusive lock of another process.
const COPY_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to copy a locked database.
const COPY_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Copies a consistent snapshot of a database to a new file, which only its owner can read.
///
/// Other processes may continue to write, and the schema version is not changed. When the function returns, the copy is
/// durable and consists of one file without a log. Blocks until the copy is complete.
pub fn copy_database(path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<(), StoreError> {
    copy_database_with(path.as_ref(), target.as_ref(), |_| Ok(()))
}

/// Copies a database like [`copy_database`], for a backup: its unfinished work is marked, so that it is not repeated if the
/// copy takes the place of the database later.
pub fn back_up_database(path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<(), StoreError> {
    let target = target.as_ref();
    copy_database_with(path.as_ref(), target, |copy| match mark_copied_work(copy) {
        Err(error) if read_version(copy, target)? <= LATEST_VERSION => Err(store_error(target, &error)),
        // The tables of a newer version may differ; that version marks the work when it restores the backup.
        _ => Ok(()),
    })
}

fn copy_database_with(
    path: &Path,
    target: &Path,
    prepare: impl FnOnce(&mut Connection) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let source = open_reader(path)?;
    // A newer schema is copied as it is.
    read_version(&source, path)?;
    copy_connection(&source, target, prepare)
}

/// Copies the database of a connection to a new file, which only its owner can read, durably. `prepare` changes the copy.
pub(super) fn copy_connection(
    source: &Connection,
    target: &Path,
    prepare: impl FnOnce(&mut Connection) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| {
        classify_write_error(target, &error)
            .unwrap_or_else(|| StoreError::io(format!("write {}", target.display()), error))
    };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target).map_err(failed)?;
    let sql_failed = |error: rusqlite::Error| store_error(target, &error);
    let mut copy = Connection::open(target).map_err(sql_failed)?;
    copy_pages(source, &mut copy).map_err(sql_failed)?;
    // The copy may be archived or read from a read-only disk, so it must not need a log.
    copy.pragma_update(None, "journal_mode", "DELETE").map_err(sql_failed)?;
    prepare(&mut copy)?;
    copy.close().map_err(|(_, error)| sql_failed(error))?;
    file.sync_all().map_err(failed)
}

/// Makes the name of a file durable.
pub(super) fn sync_directory(path: &Path) -> std::io::Result<()> {
    File::open(parent_directory(path))?.sync_all()
}

/// Directory of a file.
pub(super) fn parent_directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Copies every page as of one transaction.
pub(super) fn copy_pages(source: &Connection, target: &mut Connection) -> rusqlite::Result<()> {
    let backup = Backup::new(source, target)?;
    let deadline = Instant::now() + COPY_LOCK_TIMEOUT;
    loop {
        // In one step: between several, each commit of another process would restart the copy.
        match backup.step(-1)? {
            StepResult::Done => return Ok(()),
            StepResult::Busy | StepResult::Locked if Instant::now() >= deadline => {
                return Err(rusqlite::Error::SqliteFailure(
                    rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
                    Some("another process has locked the whole database".to_owned()),
                ));
            }
            _ => std::thread::sleep(COPY_RETRY_INTERVAL),
        }
    }
}
