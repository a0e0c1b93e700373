//! When what was written is on disk.
//!
//! `SQLite` itself only writes to its log. The log is synced here, and not with every commit: nobody who was promised a
//! durable commit hears of it before, and whoever was promised less need not wait.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use capstan_tape::StoreError;
use rusqlite::Connection;
use tokio::sync::watch;

/// How long the disk may go without what nobody waits for. Mostly something comes that somebody does wait for, and one
/// sync is enough for both.
const MAX_SYNC_DELAY: Duration = Duration::from_millis(10);

/// The log of a database that is open for writing.
pub(super) struct WalSyncer {
    path: PathBuf,
    file: File,
    /// Since when something is not on disk that nobody waits for.
    unsynced_since: Option<Instant>,
    /// Why nothing may be written any more. A disk that has failed to sync once may have lost what it was given, and says
    /// nothing of that the next time.
    failure_watch: watch::Sender<Option<StoreError>>,
}

impl WalSyncer {
    /// The log of a connection that has read something, so it is there, to this database.
    pub(super) fn open(connection: &Connection, database: &Path) -> Result<Self, StoreError> {
        // It lies beside the file that SQLite found, through whatever links. A path that is no text it does not tell.
        let mut path = OsString::from(connection.path().map_or(database, Path::new));
        path.push("-wal");
        let path = PathBuf::from(path);
        let file = File::open(&path).map_err(|error| StoreError::io(format!("open {}", path.display()), error))?;
        Ok(Self { path, file, unsynced_since: None, failure_watch: watch::Sender::new(None) })
    }

    /// Tells when it has failed.
    pub(super) fn failure_watch(&self) -> watch::Receiver<Option<StoreError>> {
        self.failure_watch.subscribe()
    }

    pub(super) fn failure(&self) -> Option<StoreError> {
        self.failure_watch.borrow().clone()
    }

    /// Something was written that nobody waits for.
    pub(super) fn mark_unsynced(&mut self) {
        self.unsynced_since.get_or_insert_with(Instant::now);
    }

    /// When what nobody waits for is to be synced.
    pub(super) fn sync_deadline(&self) -> Option<Instant> {
        self.unsynced_since.map(|since| since + MAX_SYNC_DELAY)
    }

    /// Returns when the disk has all that was written.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.unsynced_since = None;
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        self.file.sync_data().map_err(|error| {
            let (what, detail) = (self.path.display().to_string(), error.to_string());
            let failure = StoreError::SyncFailed { what, detail };
            tracing::error!(error = %failure, "the disk failed");
            self.failure_watch.send_replace(Some(failure.clone()));
            failure
        })
    }
}
