//! When what was written is on disk.
//!
//! `SQLite` itself only writes to its log. The log is synced here, and not with every commit: nobody who was promised a
//! durable commit hears of it before, and whoever was promised less need not wait.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use capstan_tape::StoreError;

/// How long the disk may go without what nobody waits for. Mostly something comes that somebody does wait for, and one
/// sync is enough for both.
const UNSYNCED: Duration = Duration::from_millis(10);

/// The log of a database that is open for writing.
pub(super) struct Log {
    path: PathBuf,
    /// The log is there once something was written.
    file: Option<File>,
    /// Since when something is not on disk that nobody waits for.
    unsynced: Option<Instant>,
    failed: Option<StoreError>,
}

impl Log {
    pub(super) fn of(database: &Path) -> Self {
        let mut path = OsString::from(database);
        path.push("-wal");
        Self { path: path.into(), file: None, unsynced: None, failed: None }
    }

    /// Why nothing may be written any more. A disk that has failed to sync once may have lost what it was given, and says
    /// nothing of that the next time.
    pub(super) fn failure(&self) -> Option<&StoreError> {
        self.failed.as_ref()
    }

    /// Something was written that nobody waits for.
    pub(super) fn wrote(&mut self) {
        self.unsynced.get_or_insert_with(Instant::now);
    }

    /// When what nobody waits for is to be synced.
    pub(super) fn due(&self) -> Option<Instant> {
        self.unsynced.map(|since| since + UNSYNCED)
    }

    /// Returns when the disk has all that was written.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.unsynced = None;
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.synced().map_err(|error| {
            let hint = "what was written last may be lost, so Capstan has to be started anew";
            let error = StoreError::io(format!("sync {}", self.path.display()), format!("{error}; {hint}"));
            self.failed.insert(error).clone()
        })
    }

    fn synced(&mut self) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::options().read(true).write(true).open(&self.path)?),
        };
        file.sync_data()
    }
}
