//! Conversion of `SQLite` errors to store errors.

use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use capstan_tape::StoreError;
use rusqlite::ErrorCode;

use super::backup::parent_directory;

/// Size of the probe file: as much as `SQLite` needs next to a database to open it.
const PROBE_BYTES: usize = 64 * 1024;

/// Converts an error: the file is damaged, read-only or locked, or the disk is full or failed.
pub(super) fn store_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    let what = path.display().to_string();
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => StoreError::corrupt(what, error),
        other => match other.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => StoreError::corrupt_file(what, other),
            Some(ErrorCode::DiskFull) => disk_full_error(path),
            Some(ErrorCode::OutOfMemory) => {
                StoreError::io(format!("open or use {what}"), "the system is out of memory")
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy { what },
            Some(ErrorCode::ReadOnly) => {
                diagnose_write_error(path).unwrap_or_else(|| StoreError::read_only(what, other))
            }
            Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) => {
                diagnose_write_error(path).unwrap_or_else(|| StoreError::io(what, other))
            }
            _ => StoreError::io(what, other),
        },
    }
}

/// Error for a full file system: without space, or without inodes.
pub(crate) fn disk_full_error(path: &Path) -> StoreError {
    let what = path.display().to_string();
    let has_inodes = rustix::fs::statvfs(parent_directory(path)).map_or(true, |stats| has_free_inodes(&stats));
    if has_inodes { StoreError::DiskFull { what } } else { StoreError::NoInodes { what } }
}

/// Some file systems have no fixed number of inodes and report zero.
fn has_free_inodes(stats: &rustix::fs::StatVfs) -> bool {
    stats.f_files == 0 || stats.f_favail > 0
}

/// Error for a thread that could not be started.
pub(super) fn thread_error(what: String, error: &io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::WouldBlock => StoreError::NoThread { what, detail: error.to_string() },
        _ => StoreError::io(what, error),
    }
}

/// Finds out why files next to a database cannot be written. `SQLite` does not return the error of the system, so a
/// probe file is written to get it.
///
/// The database itself is never opened for this: closing it would release the locks that this process holds on it.
pub(super) fn diagnose_write_error(path: &Path) -> Option<StoreError> {
    // An unnamed file conflicts with no other file, and disappears even if the process is killed.
    let written = tempfile::tempfile_in(parent_directory(path)).and_then(|mut file| {
        file.write_all(&vec![0; PROBE_BYTES])?;
        // As long as the log or the database, in case the size of files is limited. A sparse file needs no space.
        file.write_all_at(&[0], largest_file_len(path))
    });
    classify_write_error(path, &written.err()?)
}

/// Length of the database or of its log, whichever is longer.
fn largest_file_len(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let length = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    length(path).max(length(Path::new(&log)))
}

/// Store error of a failed write; `None` if it is neither the space nor the permissions.
pub(super) fn classify_write_error(path: &Path, error: &io::Error) -> Option<StoreError> {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Some(disk_full_error(path)),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            Some(StoreError::read_only(parent_directory(path).display().to_string(), error))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use capstan_protocol::CodedError as _;
    use rusqlite::ffi;

    use super::{store_error, thread_error};

    #[test]
    fn x07_out_of_memory_names_the_path_once_and_the_reason() {
        let failure =
            rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_NOMEM), Some("/h/capstan.db".to_owned()));
        let text = store_error(Path::new("/h/capstan.db"), &failure).to_string();
        assert_eq!(text.matches("/h/capstan.db").count(), 1, "{text}");
        assert!(text.contains("out of memory"), "{text}");
    }

    #[test]
    fn x07_refused_thread_hints_at_the_limit_of_threads() {
        let refused = io::Error::from_raw_os_error(rustix::io::Errno::AGAIN.raw_os_error());
        let error = thread_error("start the writer thread".to_owned(), &refused);
        assert!(error.hint().is_some_and(|hint| hint.contains("ulimit -u")), "{error:?}");
        let other = thread_error("start the writer thread".to_owned(), &io::ErrorKind::OutOfMemory.into());
        assert_eq!(other.hint(), None);
    }
}
