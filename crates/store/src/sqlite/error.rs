//! Conversion of `SQLite` errors to store errors.

use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use capstan_tape::StoreError;
use rusqlite::ErrorCode;

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
            Some(ErrorCode::DiskFull) => StoreError::DiskFull { what },
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

fn parent_directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn classify_write_error(path: &Path, error: &io::Error) -> Option<StoreError> {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Some(StoreError::DiskFull { what: path.display().to_string() })
        }
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            Some(StoreError::read_only(parent_directory(path).display().to_string(), error))
        }
        _ => None,
    }
}
