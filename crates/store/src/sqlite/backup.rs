//! Copies of a database that is in use.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use capstan_tape::StoreError;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::error::store_error;
use super::reader::open_reader;
use super::schema::check_version;

/// Maximum time that a copy waits for an exclusive lock of another process.
const COPY_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to copy a locked database.
const COPY_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Copies a consistent snapshot of a database to a new file, which only its owner can read.
///
/// Other processes may continue to write, and the schema version is not changed. When the function returns, the copy is
/// durable and consists of one file without a log. Blocks until the copy is complete.
pub fn copy_database(path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<(), StoreError> {
    let (path, target) = (path.as_ref(), target.as_ref());
    let failed = |error: std::io::Error| StoreError::io(format!("write {}", target.display()), error);
    let source = open_reader(path)?;
    check_version(&source, path)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target).map_err(failed)?;
    let copy = || {
        let mut copy = Connection::open(target)?;
        copy_pages(&source, &mut copy)?;
        // The copy may be archived or read from a read-only disk, so it must not need a log.
        copy.pragma_update(None, "journal_mode", "DELETE")?;
        copy.close().map_err(|(_, error)| error)
    };
    copy().map_err(|error| store_error(target, &error))?;
    file.sync_all().map_err(failed)
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
