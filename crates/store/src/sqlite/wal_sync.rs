//! Syncs of the write-ahead log.
//!
//! `SQLite` writes commits to its log without syncing it. The writer syncs the log itself: before it replies to a
//! durable commit, and soon after commits that only promise order, which do not wait for the disk. A sync counts only if
//! the files are still those of the database and have its commits ([`file_guard`](super::file_guard)).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use capstan_tape::{Batch, CommitReceipt, StoreError};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::watch;

use super::commit_witness::CommitWitness;
use super::error::store_error;
use super::file_guard::{FileGuard, FileReplacement, GuardError, LogUse, sidecar};
use super::high_water_mark::MarkKeeper;
use super::log_guard::LogProgress;

/// Maximum delay of a sync that no caller waits for. A durable commit usually follows within this time, and one sync
/// serves both.
const MAX_SYNC_DELAY: Duration = Duration::from_millis(10);

/// Write-ahead log of a database that is open for writing.
pub(super) struct WalSyncer {
    path: PathBuf,
    file: File,
    guard: FileGuard,
    mark: MarkKeeper,
    witness: CommitWitness,
    /// The files hold another state than the one that was open; use of the log that is there.
    other_state: Option<LogUse>,
    /// Time of the first commit that is not synced and that no caller waits for.
    unsynced_since: Option<Instant>,
    /// First permanent failure, after which no commit is allowed. After a failed sync the disk may have lost earlier
    /// writes, and a later sync would not report that.
    failure_watch: watch::Sender<Option<StoreError>>,
}

impl WalSyncer {
    /// Opens the log of a database. The connection must have read something, so that the log exists.
    pub(super) fn open(connection: &Connection, database: &Path) -> Result<Self, StoreError> {
        // The log is next to the file that symbolic links lead to. SQLite reports no path that is not UTF-8.
        let database = connection.path().map_or(database, Path::new);
        let path = sidecar(database, "-wal");
        let file = File::open(&path).map_err(|error| StoreError::io(format!("open {}", path.display()), error))?;
        let (guard, mark) = (FileGuard::open(connection, database)?, MarkKeeper::open(connection, database)?);
        let witness = CommitWitness::read(connection).map_err(|error| store_error(database, &error))?;
        let (other_state, unsynced_since, failure_watch) = (None, None, watch::Sender::new(None));
        Ok(Self { path, file, guard, mark, witness, other_state, unsynced_since, failure_watch })
    }

    /// Watch for a permanent failure.
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

    /// Makes all commits of the connection durable.
    pub(super) fn sync(&mut self, connection: &Connection) -> Result<(), StoreError> {
        self.unsynced_since = None;
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        // Counted before the sync: other processes may write meanwhile.
        let entries = self.mark.due_entries(connection);
        self.file.sync_data().map_err(|error| {
            let (what, detail) = (self.path.display().to_string(), error.to_string());
            self.fail(StoreError::SyncFailed { what, detail })
        })?;
        match self.check(connection) {
            Err(GuardError::Replaced(change)) => return Err(self.fail_replaced(connection, &change)),
            // The commits are written and synced; the check before the next one reports the error.
            Err(GuardError::Unreadable(error)) => tracing::warn!(%error, "the files could not be checked"),
            Ok(()) => {}
        }
        if let Some(entries) = entries {
            self.witness.record_entries(entries);
            self.mark.advance(entries);
        }
        Ok(())
    }

    /// Checks the files before a transaction, which may end with a checkpoint.
    pub(super) fn check_files(&mut self, connection: &Connection) -> Result<(), StoreError> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let checked = self.check(connection);
        self.fail_if_replaced(connection, checked)
    }

    /// Checks the log inside a transaction, before anything is decided by what the transaction reads.
    pub(super) fn check_transaction(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let checked = self.guard.check_transaction().and_then(|progress| self.check_witness(connection, progress));
        self.fail_if_replaced(connection, checked)
    }

    /// Records a committed batch. If it added rows, it must be in the log from now on.
    pub(super) fn record_commit(&mut self, batch: &Batch, receipt: &CommitReceipt) {
        if self.witness.record_commit(batch, receipt) {
            self.guard.record_commit();
        }
    }

    fn check(&mut self, connection: &Connection) -> Result<(), GuardError> {
        let progress = self.guard.check(connection)?;
        self.check_witness(connection, progress)
    }

    /// Checks that the database has the last commits after its log was restarted.
    fn check_witness(&self, connection: &Connection, progress: LogProgress) -> Result<(), GuardError> {
        if progress == LogProgress::Complete {
            return Ok(());
        }
        match self.witness.is_present(connection) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.guard.missing_commits()),
            Err(error) => Err(GuardError::Unreadable(store_error(&self.path, &error))),
        }
    }

    fn fail_if_replaced(&mut self, connection: &Connection, checked: Result<(), GuardError>) -> Result<(), StoreError> {
        checked.map_err(|error| match error {
            GuardError::Replaced(change) => self.fail_replaced(connection, &change),
            GuardError::Unreadable(error) => error,
        })
    }

    /// Prepares the end of the connection: `SQLite` must not checkpoint into another database, and the mark gets the last
    /// entries.
    pub(super) fn close(&mut self, connection: &Connection) {
        // A failure is logged, and there is no caller to report it to.
        if self.check_files(connection).is_ok() && self.unsynced_since.is_none() {
            self.mark.close(connection);
        }
        if let Some(log_use) = self.other_state {
            if log_use == LogUse::Decide
                && let Some(log) = self.guard.set_foreign_log_aside()
            {
                tracing::error!(log = %log.display(), "a log that does not belong to the database was moved away");
            }
            // The mark may have been replaced after the database.
            self.mark.record_replacement(self.witness.entries());
        }
    }

    /// Records a permanent failure and returns it.
    pub(super) fn fail(&mut self, failure: StoreError) -> StoreError {
        tracing::error!(error = %failure, "the store refuses all further writes");
        self.failure_watch.send_replace(Some(failure.clone()));
        failure
    }

    /// Fails because the files changed, and keeps the log from a database that it does not belong to.
    fn fail_replaced(&mut self, connection: &Connection, change: &FileReplacement) -> StoreError {
        let mut detail = change.detail.to_owned();
        if change.log_use != LogUse::Apply
            && let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        {
            tracing::error!(%error, "the log may be written to the database when it is closed");
        }
        if change.log_use == LogUse::SetAside
            && let Some(log) = self.guard.set_log_aside()
        {
            detail = format!("{detail}; the log of the previous database is now {}", log.display());
        }
        if change.is_other_state {
            self.other_state = Some(change.log_use);
            self.mark.record_replacement(self.witness.entries());
        }
        self.fail(StoreError::FilesReplaced { what: change.path.display().to_string(), detail })
    }
}
