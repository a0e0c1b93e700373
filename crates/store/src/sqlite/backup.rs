//! Copies of a database, taken while others write to it.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use capstan_tape::StoreError;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::SqliteStore;
use super::error::store_error;
use super::reader::open_reader;
use super::schema::check_version;

/// How long a copy waits for somebody who keeps the whole file to himself.
const COPY_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it waits before it asks again.
const COPY_RETRY_INTERVAL: Duration = Duration::from_millis(20);

impl SqliteStore {
    /// Copies a database as it is at one moment to a file that must not be there, which only its owner can read.
    ///
    /// Others may go on writing. The version stays what it is. When this returns the copy is on disk, one file and no
    /// log beside it. Blocks until it is done.
    pub fn copy_database(path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<(), StoreError> {
        let (path, target) = (path.as_ref(), target.as_ref());
        let failed = |error: std::io::Error| StoreError::io(format!("write {}", target.display()), error);
        let source = open_reader(path)?;
        check_version(&source, path)?;
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target).map_err(failed)?;
        let copy = || {
            let mut copy = Connection::open(target)?;
            copy_pages(&source, &mut copy)?;
            // A file that is put away, or looked at where nothing can be written, must do without a log beside it.
            copy.pragma_update(None, "journal_mode", "DELETE")?;
            copy.close().map_err(|(_, error)| error)
        };
        copy().map_err(|error| store_error(target, &error))?;
        made.sync_all().map_err(failed)
    }
}

/// Copies every page, all of them as they are at one moment.
pub(super) fn copy_pages(source: &Connection, target: &mut Connection) -> rusqlite::Result<()> {
    let backup = Backup::new(source, target)?;
    let deadline = Instant::now() + COPY_LOCK_TIMEOUT;
    loop {
        // All in one step: in several, each commit of another process would make it begin anew.
        match backup.step(-1)? {
            StepResult::Done => return Ok(()),
            StepResult::Busy | StepResult::Locked if Instant::now() >= deadline => {
                return Err(rusqlite::Error::SqliteFailure(
                    rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
                    Some("another process keeps the whole database to itself".to_owned()),
                ));
            }
            _ => std::thread::sleep(COPY_RETRY_INTERVAL),
        }
    }
}
