//! What `SQLite` says, in the words of a store.

use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use capstan_tape::StoreError;
use rusqlite::ErrorCode;

/// How much is written to learn what the system says: as much as a database needs beside it to be opened.
const PROBE_BYTES: usize = 64 * 1024;

/// Whether the file is damaged, cannot be written or is locked, or the disk failed, and which file it is.
pub(super) fn store_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    let what = path.display().to_string();
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => StoreError::corrupt(what, error),
        other => match other.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => StoreError::corrupt(what, other),
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

/// Why nothing can be written beside a database, which needs files there. `SQLite` keeps what the system said to itself,
/// so the system is asked again.
///
/// Never by opening the database: to close it again would give up the locks that this process holds on it.
pub(super) fn diagnose_write_error(path: &Path) -> Option<StoreError> {
    // A file without a name: nobody else's is in its way, and nothing of it stays, whatever happens here.
    let written = tempfile::tempfile_in(parent_directory(path)).and_then(|mut file| {
        file.write_all(&vec![0; PROBE_BYTES])?;
        // As far as the log or the database reaches, for there may be a limit on that. It takes no room on the disk.
        file.write_all_at(&[0], largest_file_len(path))
    });
    classify_write_error(path, &written.err()?)
}

/// How long the database or its log is, whichever is longer.
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
