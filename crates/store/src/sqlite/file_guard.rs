//! Guard of the files of an open database.
//!
//! `SQLite` keeps its files open and goes on writing to them after they were removed, moved away, replaced or
//! overwritten: every commit succeeds, and none is found again. The guard looks at the paths and at the content of the
//! database and of its log ([`log_guard`](super::log_guard)).
//!
//! # Overwritten content
//!
//! Only checkpoints write to the database file, and the WAL index shows their progress. A change of the file that no
//! checkpoint explains is foreign. Where the index cannot tell, because the log was restarted since the last look, the
//! change counts as explained.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use capstan_protocol::Timestamp;
use capstan_tape::StoreError;
use rusqlite::Connection;

use super::error::store_error;
use super::log_guard::{LogDamage, LogGuard, LogProgress};

/// Length of the header of a database.
const DATABASE_HEADER_BYTES: usize = 100;
/// Length of the part of the WAL index that describes the log and its checkpoints.
const WAL_INDEX_HEADER_BYTES: usize = 136;
/// Offset of the number of frames in the log.
const MAX_FRAME_OFFSET: usize = 16;
/// Offset of the salts of the log. A restart of the log increments the first one.
const WAL_SALTS_OFFSET: usize = 32;
/// Offset of the number of frames that were checkpointed.
const BACKFILL_OFFSET: usize = 96;
/// Offset of the number of frames that a checkpoint has begun to copy.
const BACKFILL_ATTEMPTED_OFFSET: usize = 128;

/// Files of a database that is open for writing, as they were when they were last looked at.
pub(super) struct FileGuard {
    database: OpenedFile,
    wal: OpenedFile,
    shm: OpenedFile,
    /// Handles for reading parts of the files.
    database_handle: &'static File,
    shm_handle: &'static File,
    log_handle: File,
    log_guard: LogGuard,
    known: DatabaseState,
}

/// File that `SQLite` has open.
struct OpenedFile {
    path: PathBuf,
    id: FileId,
}

/// Identity of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

/// State of a database file, with the progress of checkpoints and the commits of others before it was read.
struct DatabaseState {
    stamp: WriteStamp,
    header: Vec<u8>,
    checkpoint: CheckpointState,
    data_version: i64,
}

/// Size and modification time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WriteStamp {
    size: u64,
    modified: (i64, i64),
}

/// Progress of checkpoints, from the WAL index.
///
/// A checkpoint sets `attempted` before it writes to the database, and `backfilled` after. A restart of the log sets
/// both to zero and increments the salt; it needs a log that is checkpointed completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CheckpointState {
    salt: u32,
    max_frame: u32,
    backfilled: u32,
    attempted: u32,
}

impl CheckpointState {
    /// Returns true if a checkpoint may have written to the database between this state and a later one.
    ///
    /// After one restart of a log that was checkpointed completely, nothing was written, unless other connections
    /// committed before the restart.
    fn may_have_written_until(self, later: Self, others_committed: bool) -> bool {
        let was_in_progress = self.attempted != self.backfilled;
        match later.salt.wrapping_sub(self.salt) {
            0 => was_in_progress || later.attempted != self.attempted,
            1 => was_in_progress || later.attempted > 0 || self.backfilled < self.max_frame || others_committed,
            _ => true,
        }
    }
}

/// Change of files that must not be ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileReplacement {
    /// File that changed.
    pub(super) path: PathBuf,
    /// Description of the change.
    pub(super) detail: &'static str,
    /// Use of the log from now on.
    pub(super) log_use: LogUse,
    /// The files at their paths hold another state than the one that is open.
    pub(super) is_other_state: bool,
}

/// Use of a log after the files changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogUse {
    /// Applied to the database, to which it belongs, when the connection is closed.
    Apply,
    /// Left next to the database: it is that of another state, and this process does not apply it.
    Leave,
    /// Moved away from the database at its path, to which it does not belong.
    SetAside,
    /// Left until the connection is closed, and moved away then if it does not belong to the database.
    Decide,
}

/// Failure of a check.
pub(super) enum GuardError {
    /// The files changed.
    Replaced(FileReplacement),
    /// The files could not be looked at.
    Unreadable(StoreError),
}

impl FileGuard {
    /// Opens the guard of a database whose log and WAL index exist.
    pub(super) fn open(connection: &Connection, database: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io(format!("open the files of {}", database.display()), error);
        let open = |path: PathBuf| OpenedFile::open(path).map_err(failed);
        let (wal, shm) = (open(sidecar(database, "-wal"))?, open(sidecar(database, "-shm"))?);
        let database_handle = lasting_handle(database).map_err(failed)?;
        let shm_handle = lasting_handle(&shm.path).map_err(failed)?;
        let data_version = data_version(connection, database)?;
        let known = DatabaseState {
            data_version,
            checkpoint: CheckpointState::read(shm_handle).map_err(failed)?,
            stamp: WriteStamp::of(&database.metadata().map_err(failed)?),
            header: read_header(database_handle).map_err(failed)?,
        };
        let log_handle = File::open(&wal.path).map_err(failed)?;
        let log_guard = LogGuard::open(shm_handle).map_err(failed)?;
        let database = open(database.to_path_buf())?;
        Ok(Self { database, wal, shm, database_handle, shm_handle, log_handle, log_guard, known })
    }

    /// Checks that the paths still lead to the open files, that only checkpoints changed the database, and that the log has
    /// all commits.
    pub(super) fn check(&mut self, connection: &Connection) -> Result<LogProgress, GuardError> {
        let unreadable = |error| {
            GuardError::Unreadable(StoreError::io(
                format!("look at the files of {}", self.database.path.display()),
                error,
            ))
        };
        let data_version_before = data_version(connection, &self.database.path).map_err(GuardError::Unreadable)?;
        let before = CheckpointState::read(self.shm_handle).map_err(unreadable)?;
        // The database comes first: if another one took its place, it does not matter if the log is still there.
        let metadata = match self.database.check_path().map_err(unreadable)? {
            Ok(metadata) => metadata,
            Err(change) => return Err(self.database_change(change).into()),
        };
        let stamp = WriteStamp::of(&metadata);
        if stamp != self.known.stamp {
            let header = read_header(self.database_handle).map_err(unreadable)?;
            if header != self.known.header {
                let after = CheckpointState::read(self.shm_handle).map_err(unreadable)?;
                let data_version_after =
                    data_version(connection, &self.database.path).map_err(GuardError::Unreadable)?;
                let others_committed = self.known.data_version != data_version_after;
                let known = self.known.checkpoint;
                let is_explained = known.may_have_written_until(before, others_committed)
                    || known.may_have_written_until(after, others_committed);
                if !is_explained {
                    return Err(self.database_change(self.database.replacement("its content was overwritten")).into());
                }
                self.known.header = header;
            }
        }
        self.known = DatabaseState {
            stamp,
            header: std::mem::take(&mut self.known.header),
            // Read before the file: a checkpoint that wrote since is still recognised at the next look.
            checkpoint: before,
            data_version: data_version_before,
        };
        for file in [&self.wal, &self.shm] {
            file.check_path().map_err(unreadable)??;
        }
        self.check_log()
    }

    /// Checks the log inside a write transaction, when no other process can change it.
    pub(super) fn check_transaction(&mut self) -> Result<LogProgress, GuardError> {
        match self.log_guard.is_unchanged() {
            Ok(true) => Ok(LogProgress::Complete),
            _ => self.check_log(),
        }
    }

    /// Records that this process has committed.
    pub(super) fn record_commit(&mut self) {
        self.log_guard.record_commit();
    }

    fn check_log(&mut self) -> Result<LogProgress, GuardError> {
        let checked = self.log_guard.check(&self.log_handle);
        let checked = checked.map_err(|error| {
            GuardError::Unreadable(StoreError::io(format!("look at the log {}", self.wal.path.display()), error))
        })?;
        checked.map_err(|damage| GuardError::Replaced(self.log_change(damage)))
    }

    /// Change of a log that lacks commits. The program that changes it may not be done: whether the log may be applied to
    /// the database is decided when the connection is closed.
    fn log_change(&self, damage: LogDamage) -> FileReplacement {
        let log_use = if damage.is_consistent { LogUse::Leave } else { LogUse::Decide };
        FileReplacement { log_use, is_other_state: true, ..self.wal.replacement(damage.detail) }
    }

    /// Moves a damaged log away if it must not be applied to the database. Returns its new path.
    pub(super) fn set_foreign_log_aside(&self) -> Option<PathBuf> {
        let backfilled = CheckpointState::read(self.shm_handle).ok()?.backfilled;
        if self.log_guard.is_foreign(&self.log_handle, backfilled) { self.set_log_aside() } else { None }
    }

    /// Change of the database. The log of the open database is kept from the one at its path; a log that was replaced as
    /// well may belong to it.
    fn database_change(&mut self, change: FileReplacement) -> FileReplacement {
        let is_log_replaced = matches!(self.check_log(), Err(GuardError::Replaced(_)));
        let log_use = if is_log_replaced { LogUse::Leave } else { LogUse::SetAside };
        FileReplacement { log_use, is_other_state: self.database.path.exists(), ..change }
    }

    /// Change that the rows of the database show: the last commits are not in it.
    pub(super) fn missing_commits(&self) -> GuardError {
        let change = self.database.replacement("an older copy took the place of its content");
        FileReplacement { log_use: LogUse::Leave, is_other_state: true, ..change }.into()
    }

    /// Moves the log and the WAL index away from a database that they do not belong to: the next process to open it
    /// would apply them to it. Returns the new path of the log.
    pub(super) fn set_log_aside(&self) -> Option<PathBuf> {
        let suffix = format!(".orphaned-{}", Timestamp::now().as_millis());
        let set_aside = |file: &OpenedFile| {
            // A file that another process has created in the meantime belongs to the new database.
            let metadata = file.path.metadata().ok()?;
            let target = sidecar(&file.path, &suffix);
            if FileId::of(&metadata) != file.id {
                return None;
            }
            // Unlike a rename, a link never replaces a file.
            match std::fs::hard_link(&file.path, &target).and_then(|()| std::fs::remove_file(&file.path)) {
                Ok(()) => Some(target),
                Err(error) => {
                    tracing::error!(file = %file.path.display(), %error, "the log of a replaced database stays next to it");
                    None
                }
            }
        };
        set_aside(&self.shm);
        set_aside(&self.wal)
    }
}

impl From<FileReplacement> for GuardError {
    fn from(replacement: FileReplacement) -> Self {
        Self::Replaced(replacement)
    }
}

impl OpenedFile {
    fn open(path: PathBuf) -> std::io::Result<Self> {
        Ok(Self { id: FileId::of(&path.metadata()?), path })
    }

    /// Checks that the path still leads to this file, and returns its metadata. The outer error is a failure to look.
    fn check_path(&self) -> std::io::Result<Result<Metadata, FileReplacement>> {
        match self.path.metadata() {
            Ok(metadata) if FileId::of(&metadata) == self.id => Ok(Ok(metadata)),
            Ok(_) => Ok(Err(self.replacement("another file took its place"))),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Ok(Err(self.replacement("it was removed or moved")))
            }
            Err(error) => Err(error),
        }
    }

    fn replacement(&self, detail: &'static str) -> FileReplacement {
        FileReplacement { path: self.path.clone(), detail, log_use: LogUse::Apply, is_other_state: false }
    }
}

impl WriteStamp {
    fn of(metadata: &Metadata) -> Self {
        Self { size: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

impl FileId {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Opens a file for reading, once in the lifetime of the process: closing any handle of a file releases all locks that
/// the process has on it, also those of `SQLite`.
fn lasting_handle(path: &Path) -> std::io::Result<&'static File> {
    static HANDLES: Mutex<Vec<(FileId, &'static File)>> = Mutex::new(Vec::new());
    let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    let id = FileId::of(&path.metadata()?);
    if let Some((_, handle)) = handles.iter().find(|(known, _)| *known == id) {
        return Ok(handle);
    }
    let handle: &'static File = Box::leak(Box::new(File::open(path)?));
    handles.push((FileId::of(&handle.metadata()?), handle));
    Ok(handle)
}

/// Path of a file next to another one.
pub(super) fn sidecar(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Reads the header of a database; shorter if the file is.
fn read_header(database: &File) -> std::io::Result<Vec<u8>> {
    let mut header = vec![0; DATABASE_HEADER_BYTES];
    let length = database.read_at(&mut header, 0)?;
    header.truncate(length);
    Ok(header)
}

impl CheckpointState {
    fn read(wal_index: &File) -> std::io::Result<Self> {
        let mut header = [0; WAL_INDEX_HEADER_BYTES];
        wal_index.read_exact_at(&mut header, 0)?;
        Ok(Self {
            // The salts are stored as in the log, the other numbers in the order of the machine.
            salt: u32::from_be_bytes(field(&header, WAL_SALTS_OFFSET)),
            max_frame: u32::from_ne_bytes(field(&header, MAX_FRAME_OFFSET)),
            backfilled: u32::from_ne_bytes(field(&header, BACKFILL_OFFSET)),
            attempted: u32::from_ne_bytes(field(&header, BACKFILL_ATTEMPTED_OFFSET)),
        })
    }
}

/// Reads the counter that changes with commits of other connections.
fn data_version(connection: &Connection, database: &Path) -> Result<i64, StoreError> {
    let read = || connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0));
    read().map_err(|error: rusqlite::Error| store_error(database, &error))
}

fn field<const N: usize>(header: &[u8; WAL_INDEX_HEADER_BYTES], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[offset..offset + N]);
    bytes
}
