//! Tape store in a directory of JSONL files.

use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_protocol::{EntryId, TapeName};
use capstan_tape::{Entry, IntegrityProblem, StoreError, TapeSlice, TapeStore};

use super::line::format_line;
use super::slice_reader::read_slice;
use super::tail::{FileTail, quarantine_torn_line, read_tail, sync_parent_directory};
use super::tape_file::{TapeFile, parse_tape_file};
use crate::{PRIVATE_DIRECTORY_MODE, PRIVATE_FILE_MODE};

/// Tape store with one file `<tape>.jsonl` per tape in a directory.
///
/// Appended lines are durable before `append` returns. A lock on the file keeps two processes from writing at once.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use capstan_store::JsonlTapeStore;
/// use capstan_tape::{MemoryStore, TapeRepository};
///
/// let directory = tempfile::tempdir()?;
/// let files = JsonlTapeStore::open(directory.path())?;
/// let tapes = TapeRepository::with_external_store(Arc::new(MemoryStore::new()), Arc::new(files));
/// assert!(tapes.list().await?.is_empty());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct JsonlTapeStore {
    directory: Arc<PathBuf>,
    /// Tapes whose torn line was logged by a read; each is logged once.
    reported_torn: Arc<Mutex<HashSet<TapeName>>>,
}

impl JsonlTapeStore {
    /// Opens a directory of tape files. A missing directory is created with the first entry, not by reads.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, StoreError> {
        let directory = directory.as_ref().to_path_buf();
        match std::fs::metadata(&directory) {
            Ok(metadata) if !metadata.is_dir() => {
                return Err(StoreError::io(format!("open {}", directory.display()), "it is not a directory"));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io(format!("open {}", directory.display()), error));
            }
            _ => {}
        }
        Ok(Self { directory: Arc::new(directory), reported_torn: Arc::default() })
    }

    /// Path of the file of a tape, which may not exist.
    pub fn path(&self, tape: &TapeName) -> PathBuf {
        self.directory.join(format!("{tape}.jsonl"))
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let tapes = self.clone();
        let task = tokio::task::spawn_blocking(move || work(&tapes));
        task.await.map_err(|error| StoreError::io("use a tape file", error))?
    }

    fn append_sync(&self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError> {
        let path = self.path(tape);
        let failed = |error| append_error(&path, &error);
        self.create_directory().map_err(failed)?;
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(PRIVATE_FILE_MODE);
        let file = options.open(&path).map_err(failed)?;
        file.lock().or_else(ignore_unsupported_lock).map_err(failed)?;
        let tail = read_tail(&file, &path)?;
        if let Some(torn_offset) = tail.torn_offset {
            let quarantine = quarantine_torn_line(&file, &path, torn_offset).map_err(failed)?;
            tracing::warn!(%tape, file = %quarantine.display(), "moved a torn last line to a file of its own");
        }
        let new = new_entries(&file, &path, tape, &tail, entries)?;
        if new.is_empty() {
            return Ok(());
        }
        let mut text = String::from(if tail.lacks_newline { "\n" } else { "" });
        for entry in new {
            text.push_str(&format_line(entry));
            text.push('\n');
        }
        write_durably(&file, text.as_bytes()).map_err(failed)?;
        if is_new {
            sync_parent_directory(&path).map_err(failed)?;
        }
        Ok(())
    }

    /// Creates the directory durably.
    fn create_directory(&self) -> io::Result<()> {
        if self.directory.is_dir() {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY_MODE).create(self.directory.as_path())?;
        sync_parent_directory(&self.directory)
    }

    fn read_sync(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        let path = self.path(tape);
        let failed = |error| StoreError::io(format!("read {}", path.display()), error);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.map_err(failed)?,
        };
        // Without the lock, a concurrent append would look like a torn line.
        file.lock_shared().or_else(ignore_unsupported_lock).map_err(failed)?;
        let found = read_slice(&file, &path, slice)?;
        if found.has_torn_line && self.reported_torn.lock().unwrap_or_else(PoisonError::into_inner).insert(tape.clone())
        {
            tracing::warn!(%tape, path = %path.display(), "skipped the torn last line of a tape");
        }
        Ok(found.entries)
    }

    /// Reads the whole file of a tape under a lock, because a concurrent append would look like a torn line.
    fn read_tape_file(&self, tape: &TapeName) -> Result<TapeFile, StoreError> {
        let path = self.path(tape);
        let failed = |error| StoreError::io(format!("read {}", path.display()), error);
        let mut file = File::open(&path).map_err(failed)?;
        file.lock_shared().or_else(ignore_unsupported_lock).map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        parse_tape_file(&bytes).map_err(|broken| broken.into_error(&path))
    }

    fn list_sync(&self) -> Result<Vec<TapeName>, StoreError> {
        let failed = |error| StoreError::io(format!("list {}", self.directory.display()), error);
        let files = match std::fs::read_dir(self.directory.as_path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.map_err(failed)?,
        };
        let mut tapes = Vec::new();
        for file in files {
            let name = file.map_err(failed)?.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
            tapes.extend(stem.and_then(|stem| TapeName::parse(stem).ok()));
        }
        tapes.sort();
        Ok(tapes)
    }

    fn verify_sync(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        let mut problems = Vec::new();
        for tape in self.list_sync()? {
            let messages = match self.read_tape_file(&tape) {
                Err(error) => vec![error.to_string()],
                Ok(file) => {
                    let torn = file
                        .torn_line
                        .map(|torn| format!("line {} is torn: {} bytes", torn.line_number, torn.byte_len));
                    torn.into_iter().chain(out_of_order_messages(&file.entries)).collect()
                }
            };
            problems.extend(messages.into_iter().map(|message| IntegrityProblem { tape: Some(tape.clone()), message }));
        }
        Ok(problems)
    }
}

/// Error of a failed append.
fn append_error(path: &Path, error: &io::Error) -> StoreError {
    let what = path.display().to_string();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            StoreError::DiskFull { what }
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => StoreError::read_only(what, error),
        _ => StoreError::io(format!("append to {what}"), error),
    }
}

/// Ignores missing support for locks in the file system. Only one process may write there, as with Bub.
fn ignore_unsupported_lock(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::Unsupported { Ok(()) } else { Err(error) }
}

/// Entries that are not in the file yet. An entry whose id is in the file with other content is an error, because it
/// would be lost.
fn new_entries<'a>(
    file: &File,
    path: &Path,
    tape: &TapeName,
    tail: &FileTail,
    entries: &'a [Entry],
) -> Result<&'a [Entry], StoreError> {
    let last = tail.last_entry.as_ref().map(|entry| entry.id).unwrap_or_default();
    let (repeated, new) = entries.split_at(entries.iter().take_while(|entry| entry.id <= last).count());
    let out_of_order =
        |id: EntryId, head: EntryId| StoreError::OutOfOrder { tape: tape.clone(), id: id.0, head: head.0 };
    if let Some(first) = repeated.first() {
        let from_first = TapeSlice::after(EntryId(first.id.0.saturating_sub(1)));
        let stored = read_slice(file, path, &from_first)?.entries;
        if let Some(conflicting) = repeated.iter().find(|entry| !stored.contains(entry)) {
            return Err(out_of_order(conflicting.id, last));
        }
    }
    new.iter().try_fold(
        last,
        |head, entry| {
            if entry.id > head { Ok(entry.id) } else { Err(out_of_order(entry.id, head)) }
        },
    )?;
    Ok(new)
}

/// Appends to the file durably. Truncates the file again if that fails.
fn write_durably(mut file: &File, text: &[u8]) -> io::Result<()> {
    let length = file.metadata()?.len();
    let written = file.write_all(text).and_then(|()| file.sync_data());
    if written.is_err()
        && let Err(error) = file.set_len(length)
    {
        tracing::warn!(%error, "could not truncate the file after a failed append; the next append quarantines the torn line");
    }
    written
}

/// Problems of entries whose id does not follow the previous one.
fn out_of_order_messages(entries: &[Entry]) -> impl Iterator<Item = String> {
    let pairs = entries.windows(2).filter(|pair| pair[1].id <= pair[0].id);
    pairs.map(|pair| format!("entry {} does not follow entry {}", pair[1].id, pair[0].id))
}

#[async_trait]
impl TapeStore for JsonlTapeStore {
    async fn append(&self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError> {
        let (tape, entries) = (tape.clone(), entries.to_vec());
        self.run_blocking(move |tapes| tapes.append_sync(&tape, &entries)).await
    }

    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        let (tape, slice) = (tape.clone(), slice.clone());
        self.run_blocking(move |tapes| tapes.read_sync(&tape, &slice)).await
    }

    async fn tapes(&self) -> Result<Vec<TapeName>, StoreError> {
        self.run_blocking(Self::list_sync).await
    }

    async fn verify(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        self.run_blocking(Self::verify_sync).await
    }
}
