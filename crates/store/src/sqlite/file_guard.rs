//! Guard of the files of an open database.
//!
//! `SQLite` keeps its files open and goes on writing to them after they were removed, moved away, replaced or
//! overwritten: every commit succeeds, and none is found again. The guard looks at the paths and at the content that only
//! `SQLite` may change.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use capstan_tape::StoreError;

/// Length of the header of a database.
const DATABASE_HEADER_BYTES: usize = 100;
/// Length of the part of the WAL index that describes the log and its checkpoints.
const WAL_INDEX_HEADER_BYTES: usize = 136;
/// Offset of the salts of the log, which change when the log is reset.
const WAL_SALTS_OFFSET: usize = 32;
/// Offset of the number of frames that were checkpointed.
const BACKFILL_OFFSET: usize = 96;
/// Offset of the number of frames that a checkpoint has begun to copy.
const BACKFILL_ATTEMPTED_OFFSET: usize = 128;

/// Files of a database that is open for writing, as they were when they were opened.
pub(super) struct FileGuard {
    database: OpenedFile,
    wal: OpenedFile,
    shm: OpenedFile,
    content: DatabaseContent,
}

/// File that `SQLite` has open.
struct OpenedFile {
    path: PathBuf,
    id: FileId,
    /// Handle for reading parts of the file.
    handle: &'static File,
}

/// Identity of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

/// State of the database file as the last checkpoint left it.
#[derive(Clone, PartialEq, Eq)]
struct DatabaseContent {
    size: u64,
    modified: (i64, i64),
    checkpoint: CheckpointState,
    header: Vec<u8>,
}

/// Progress of checkpoints, from the WAL index. Every checkpoint changes it before it writes to the database and after.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CheckpointState {
    salts: [u8; 8],
    backfilled: u32,
    attempted: u32,
}

impl CheckpointState {
    /// Returns true if a checkpoint is in progress, or its process died.
    fn is_incomplete(&self) -> bool {
        self.attempted != self.backfilled
    }
}

/// Cause of a failed check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileReplacement {
    /// File that changed.
    pub(super) path: PathBuf,
    /// Description of the change.
    pub(super) detail: String,
    /// The database at its path is no longer the one that is open, so the log must not be applied to it.
    pub(super) is_other_database: bool,
}

impl FileGuard {
    /// Opens the guard of a database whose log and WAL index exist.
    pub(super) fn open(database: &Path) -> Result<Self, StoreError> {
        let open = |path: PathBuf| {
            OpenedFile::open(&path).map_err(|error| StoreError::io(format!("open {}", path.display()), error))
        };
        let database = open(database.to_path_buf())?;
        let (wal, shm) = (open(sidecar(&database.path, "-wal"))?, open(sidecar(&database.path, "-shm"))?);
        let failed = |error| StoreError::io(format!("read {}", database.path.display()), error);
        let metadata = database.path.metadata().map_err(failed)?;
        let content = DatabaseContent {
            size: metadata.len(),
            modified: modified_at(&metadata),
            checkpoint: read_checkpoint_state(shm.handle).map_err(failed)?,
            header: read_header(database.handle).map_err(failed)?,
        };
        Ok(Self { database, wal, shm, content })
    }

    /// Checks that the paths still lead to the open files, and that only checkpoints changed the database.
    pub(super) fn check(&mut self) -> Result<(), FileReplacement> {
        let metadata = self.database.check_path(true)?;
        self.wal.check_path(false)?;
        self.shm.check_path(false)?;
        let Some(metadata) = metadata else { return Ok(()) };
        let (size, modified) = (metadata.len(), modified_at(&metadata));
        if (size, modified) == (self.content.size, self.content.modified) {
            return Ok(());
        }
        let unreadable = |error| self.database.change(format!("it cannot be read: {error}"), false);
        // Read in this order: a checkpoint announces itself before it writes.
        let header = read_header(self.database.handle).map_err(unreadable)?;
        let checkpoint = read_checkpoint_state(self.shm.handle).map_err(unreadable)?;
        let is_checkpoint = checkpoint != self.content.checkpoint || checkpoint.is_incomplete();
        if !is_checkpoint && header != self.content.header {
            return Err(self.database.change("its content was replaced".to_owned(), true));
        }
        self.content = DatabaseContent { size, modified, checkpoint, header };
        Ok(())
    }

    /// Moves the log and the WAL index away from a database that they do not belong to: the next process to open it
    /// would apply them to it. Returns the new path of the log.
    pub(super) fn set_log_aside(&self) -> Option<PathBuf> {
        let suffix = format!(".orphaned-{}", std::process::id());
        for file in [&self.shm, &self.wal] {
            // A file that another process has created in the meantime belongs to the new database.
            if !file.path.metadata().is_ok_and(|metadata| FileId::of(&metadata) == file.id) {
                continue;
            }
            if let Err(error) = std::fs::rename(&file.path, sidecar(&file.path, &suffix)) {
                tracing::error!(file = %file.path.display(), %error, "the log of a replaced database stays next to it");
            }
        }
        Some(sidecar(&self.wal.path, &suffix)).filter(|log| log.exists())
    }
}

impl OpenedFile {
    fn open(path: &Path) -> std::io::Result<Self> {
        let handle = lasting_handle(path)?;
        Ok(Self { path: path.to_path_buf(), id: FileId::of(&handle.metadata()?), handle })
    }

    /// Checks that the path still leads to this file, and returns its metadata. Without permission to look there is
    /// none, and the file counts as unchanged.
    fn check_path(&self, is_database: bool) -> Result<Option<Metadata>, FileReplacement> {
        match self.path.metadata() {
            Ok(metadata) if FileId::of(&metadata) == self.id => Ok(Some(metadata)),
            Ok(_) => Err(self.change("another file took its place".to_owned(), is_database)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(None),
            Err(error) => Err(self.change(format!("it was removed or moved ({error})"), is_database)),
        }
    }

    fn change(&self, detail: String, is_other_database: bool) -> FileReplacement {
        FileReplacement { path: self.path.clone(), detail, is_other_database }
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

fn modified_at(metadata: &Metadata) -> (i64, i64) {
    (metadata.mtime(), metadata.mtime_nsec())
}

/// Reads the header of a database; shorter if the file is.
fn read_header(database: &File) -> std::io::Result<Vec<u8>> {
    let mut header = vec![0; DATABASE_HEADER_BYTES];
    let length = database.read_at(&mut header, 0)?;
    header.truncate(length);
    Ok(header)
}

fn read_checkpoint_state(wal_index: &File) -> std::io::Result<CheckpointState> {
    let mut header = [0; WAL_INDEX_HEADER_BYTES];
    wal_index.read_exact_at(&mut header, 0)?;
    Ok(CheckpointState {
        salts: field(&header, WAL_SALTS_OFFSET),
        backfilled: u32::from_ne_bytes(field(&header, BACKFILL_OFFSET)),
        attempted: u32::from_ne_bytes(field(&header, BACKFILL_ATTEMPTED_OFFSET)),
    })
}

fn field<const N: usize>(header: &[u8; WAL_INDEX_HEADER_BYTES], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[offset..offset + N]);
    bytes
}
