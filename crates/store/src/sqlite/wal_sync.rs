//! Syncs of the write-ahead log.
//!
//! `SQLite` writes commits to its log without syncing it. The writer syncs the log itself: before it replies to a
//! durable commit, and soon after commits that only promise order, which do not wait for the disk.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use capstan_tape::StoreError;
use rusqlite::Connection;
use tokio::sync::watch;

/// Maximum delay of a sync that no caller waits for. A durable commit usually follows within this time, and one sync
/// serves both.
const MAX_SYNC_DELAY: Duration = Duration::from_millis(10);

/// Write-ahead log of a database that is open for writing.
pub(super) struct WalSyncer {
    path: PathBuf,
    file: File,
    /// Time of the first commit that is not synced and that no caller waits for.
    unsynced_since: Option<Instant>,
    /// First failed sync, after which no commit is allowed: the disk may have lost earlier writes, and a later sync
    /// would not report that.
    failure_watch: watch::Sender<Option<StoreError>>,
}

impl WalSyncer {
    /// Opens the log of a database. The connection must have read something, so that the log exists.
    pub(super) fn open(connection: &Connection, database: &Path) -> Result<Self, StoreError> {
        // The log is next to the file that symbolic links lead to. SQLite reports no path that is not UTF-8.
        let mut path = OsString::from(connection.path().map_or(database, Path::new));
        path.push("-wal");
        let path = PathBuf::from(path);
        let file = File::open(&path).map_err(|error| StoreError::io(format!("open {}", path.display()), error))?;
        Ok(Self { path, file, unsynced_since: None, failure_watch: watch::Sender::new(None) })
    }

    /// Watch for a failed sync.
    pub(super) fn failure_watch(&self) -> watch::Receiver<Option<StoreError>> {
        self.failure_watch.subscribe()
    }

    pub(super) fn failure(&self) -> Option<StoreError> {
        self.failure_watch.borrow().clone()
    }

    /// Records a commit that no caller waits for.
    pub(super) fn mark_unsynced(&mut self) {
        self.unsynced_since.get_or_insert_with(Instant::now);
    }

    /// Deadline for syncing commits that no caller waits for.
    pub(super) fn sync_deadline(&self) -> Option<Instant> {
        self.unsynced_since.map(|since| since + MAX_SYNC_DELAY)
    }

    /// Makes all commits durable.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.unsynced_since = None;
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        self.file.sync_data().map_err(|error| {
            let (what, detail) = (self.path.display().to_string(), error.to_string());
            let failure = StoreError::SyncFailed { what, detail };
            tracing::error!(error = %failure, "the log could not be synced");
            self.failure_watch.send_replace(Some(failure.clone()));
            failure
        })
    }
}
