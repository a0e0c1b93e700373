//! What `SQLite` says, in the words of a store.

use std::path::Path;

use capstan_tape::StoreError;
use rusqlite::ErrorCode;

/// Whether the file is damaged or the disk failed, and which file it is.
pub(super) fn store_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    let what = path.display().to_string();
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => StoreError::corrupt(what, error),
        other => match other.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => StoreError::corrupt(what, other),
            _ => StoreError::io(what, other),
        },
    }
}
