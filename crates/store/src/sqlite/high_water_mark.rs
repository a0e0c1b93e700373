//! High-water mark: a file next to the database with the number of entries that were appended to its tapes.
//!
//! A database that was replaced by an older copy while no process was running looks like any other. The mark shows that
//! it had more entries before. It may lag behind the database, but never leads: it is written after the entries it counts
//! are synced, at most ten times a second, and without a sync of its own.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use capstan_protocol::Timestamp;
use capstan_tape::StoreError;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::SqliteStore;
use super::copied_work::mark_copied_work;
use super::file_guard::sidecar;

/// Minimum time between two writes of the mark.
const MARK_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum ratio of that time to the time it takes to count the entries, which grows with the number of tapes.
const MIN_INTERVAL_RATIO: u32 = 100;
/// Suffix of the file that holds the mark.
const MARK_SUFFIX: &str = "-mark";

/// State that a database had reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighWaterMark {
    /// Number of entries that were appended to all tapes.
    pub entries: u64,
    /// Loss of entries that was found when the database was opened, until an operator acknowledges it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setback: Option<StateSetback>,
    /// Time at which a process noticed that the files of the database were replaced while it used them, until the database
    /// is opened again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_at: Option<Timestamp>,
}

/// Loss of entries that the database had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateSetback {
    /// Number of missing entries.
    pub entries: u64,
    /// Time at which the loss was found.
    pub found_at: Timestamp,
}

impl HighWaterMark {
    /// Reads the mark of a database. An unreadable mark counts as none: a power failure may leave an incomplete file.
    pub fn read(database: impl AsRef<Path>) -> Result<Option<Self>, StoreError> {
        let path = sidecar(database.as_ref(), MARK_SUFFIX);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io(format!("read {}", path.display()), error)),
        }
    }

    /// Forgets a setback, so that it is no longer reported.
    pub fn acknowledge_setback(database: impl AsRef<Path>) -> Result<(), StoreError> {
        let database = database.as_ref();
        match Self::read(database)? {
            Some(mark) if mark.setback.is_some() => Self { setback: None, ..mark }.store(database),
            _ => Ok(()),
        }
    }

    /// Number of entries that a database had which is now missing, or which has no tables any more.
    pub fn lost_entries(database: impl AsRef<Path>) -> Result<Option<u64>, StoreError> {
        let database = database.as_ref();
        let Some(mark) = Self::read_beside_file(database)?.filter(|mark| mark.entries > 0) else { return Ok(None) };
        let is_lost = SqliteStore::read_schema_version(database)?.unwrap_or_default() == 0;
        Ok(is_lost.then_some(mark.entries))
    }

    /// Reads the mark next to the file that symbolic links lead to.
    pub(super) fn read_beside_file(database: &Path) -> Result<Option<Self>, StoreError> {
        Self::read(database.canonicalize().unwrap_or_else(|_| database.to_path_buf()))
    }

    /// Forgets the entries of a database that is missing or empty, so that it can be created. Returns their number.
    pub fn acknowledge_lost_entries(database: impl AsRef<Path>) -> Result<Option<u64>, StoreError> {
        let database = database.as_ref();
        let lost = Self::lost_entries(database)?;
        if lost.is_some() {
            Self::default().store(&database.canonicalize().unwrap_or_else(|_| database.to_path_buf()))?;
        }
        Ok(lost)
    }

    /// Writes the mark of a database.
    pub(super) fn store(&self, database: &Path) -> Result<(), StoreError> {
        self.write(database).map_err(|error| StoreError::io(format!("write the mark of {}", database.display()), error))
    }

    fn write(&self, database: &Path) -> std::io::Result<()> {
        let path = sidecar(database, MARK_SUFFIX);
        let temporary = sidecar(&path, &format!(".{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        std::fs::rename(&temporary, path)
    }
}

/// Counts the entries that were appended to all tapes.
pub(super) fn count_entries(connection: &Connection) -> rusqlite::Result<u64> {
    // The entries themselves may be in another store; the heads of the tapes never are.
    let mut statement = connection.prepare_cached("SELECT coalesce(sum(head), 0) FROM tapes")?;
    statement.query_row([], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

/// Marks the unfinished work, durably: the mark of the entries, which is written next, hides the setback from later
/// processes.
fn mark_durably(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    mark_copied_work(connection)?;
    connection.pragma_update(None, "synchronous", "NORMAL")
}

/// Keeps the mark of a database that is open for writing.
pub(super) struct MarkKeeper {
    database: PathBuf,
    mark: HighWaterMark,
    /// Number of entries when the database was opened.
    entries_at_open: u64,
    /// Earliest time of the next write.
    due_at: Instant,
}

impl MarkKeeper {
    /// Compares an open database with its mark, and records a setback. The unfinished work of a database that went back is
    /// marked: it may have been completed in the state that is missing.
    pub(super) fn open(connection: &Connection, database: &Path) -> Result<Self, StoreError> {
        // The mark is read first: while it was written, the database had as many entries.
        let mut mark = HighWaterMark::read(database)
            .unwrap_or_else(|error| {
                // The mark only informs: without it the database works as well.
                tracing::warn!(%error, "the high-water mark cannot be read");
                None
            })
            .unwrap_or_default();
        let entries = count_entries(connection).map_err(|error| super::error::store_error(database, &error))?;
        let (database_path, due_at) = (database.to_path_buf(), Instant::now());
        let mut keeper = Self { database: database_path, due_at, mark: mark.clone(), entries_at_open: entries };
        if entries < mark.entries || mark.replaced_at.is_some() {
            let missing = mark.entries.saturating_sub(entries);
            tracing::warn!(
                database = %database.display(),
                missing,
                "the database has fewer entries than before: an older copy took its place; `capstan doctor` tells more"
            );
            mark_durably(connection).map_err(|error| super::error::store_error(database, &error))?;
            let earlier = mark.setback.take().map_or(0, |setback| setback.entries);
            let setback = StateSetback { entries: earlier + missing, found_at: Timestamp::now() };
            keeper.replace(HighWaterMark { entries, setback: Some(setback), replaced_at: None });
        }
        Ok(keeper)
    }

    /// Returns the number of entries to mark after the next sync, if the mark is due.
    pub(super) fn due_entries(&mut self, connection: &Connection) -> Option<u64> {
        let started_at = Instant::now();
        if started_at < self.due_at {
            return None;
        }
        let entries = self.unmarked_entries(connection);
        let now = Instant::now();
        // The first entries after an idle time are marked at once: a process may be killed soon after it has started.
        let has_new = entries.is_some_and(|entries| entries > self.entries_at_open);
        let interval = if has_new { MARK_INTERVAL } else { Duration::ZERO };
        self.due_at = now + interval.max((now - started_at) * MIN_INTERVAL_RATIO);
        entries
    }

    fn unmarked_entries(&self, connection: &Connection) -> Option<u64> {
        count_entries(connection).ok().filter(|entries| *entries > self.mark.entries)
    }

    /// Writes the mark of a database that is synced and about to be closed.
    pub(super) fn close(&mut self, connection: &Connection) {
        if let Some(entries) = self.unmarked_entries(connection) {
            self.advance(entries);
        }
    }

    /// Writes the mark for entries that are synced.
    pub(super) fn advance(&mut self, entries: u64) {
        // A setback may have been acknowledged in the meantime.
        let stored = HighWaterMark::read(&self.database).ok().flatten();
        let stored = stored.unwrap_or_else(|| self.mark.clone());
        // Another process may have marked more entries, since this one counted them.
        self.replace(HighWaterMark { entries: entries.max(stored.entries), ..stored });
    }

    /// Records that another state took the place of a database with at least these entries, so that the next process does
    /// not repeat the work that is unfinished in it. The mark may have been replaced as well.
    pub(super) fn record_replacement(&mut self, entries: u64) {
        let stored = HighWaterMark::read(&self.database).ok().flatten().unwrap_or_default();
        // A process that opened the database after the first record of it has marked the unfinished work.
        let handled_at = stored.setback.as_ref().map(|setback| setback.found_at);
        if stored.replaced_at.is_none() && self.mark.replaced_at.is_some_and(|at| handled_at >= Some(at)) {
            return;
        }
        let entries = entries.max(self.mark.entries).max(stored.entries);
        let setback = self.mark.setback.clone().or(stored.setback);
        self.replace(HighWaterMark { entries, setback, replaced_at: Some(Timestamp::now()) });
    }

    fn replace(&mut self, mark: HighWaterMark) {
        // Without space the mark lags behind, which is allowed.
        if let Err(error) = mark.write(&self.database) {
            tracing::debug!(%error, "the high-water mark was not written");
        }
        self.mark = mark;
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ChatMessage, TapeName};
    use capstan_tape::{Batch, EntryDraft, Fact, JournalStore as _, NewTape};

    use super::{HighWaterMark, MarkKeeper};
    use crate::SqliteStore;
    use crate::sqlite::schema;

    fn message_batch() -> Batch {
        let (tape, mut batch) = (TapeName::parse("t").unwrap(), Batch::new());
        batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
        batch.append(&tape, EntryDraft::message(&ChatMessage::user("hello")));
        batch
    }

    #[tokio::test]
    async fn x07_first_entries_of_a_process_are_marked_at_once_after_those_of_a_killed_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("capstan.db");
        let store = SqliteStore::open(&path).unwrap();
        store.commit(message_batch()).await.unwrap();
        drop(store);
        // A process that was killed had no time to mark its last entries.
        HighWaterMark::default().store(&path).unwrap();
        let store = SqliteStore::open(&path).unwrap();
        store.commit(Batch::new()).await.unwrap();
        let before = store.count_entries().await.unwrap();
        store.commit(message_batch()).await.unwrap();
        let mark = HighWaterMark::read(&path).unwrap().unwrap();
        assert!(mark.entries > before, "{mark:?}");
    }

    #[test]
    fn x07_mark_of_a_slower_process_does_not_go_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("capstan.db");
        let connection = schema::open_writer(&path, crate::SqliteOptions::default()).unwrap();
        let mut keepers = [0; 2].map(|_| MarkKeeper::open(&connection, &path).unwrap());
        keepers[0].advance(10);
        keepers[1].advance(7);
        assert_eq!(HighWaterMark::read(&path).unwrap().unwrap().entries, 10);
    }
}
