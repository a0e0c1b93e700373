//! Probe for the write lock of a database.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::schema::is_busy;

/// Returns true if another connection holds the write lock of a database for the whole of `timeout`. Writes nothing.
///
/// Returns false if the database cannot be opened for writing, because the lock cannot be probed then.
pub fn is_database_locked(path: impl AsRef<Path>, timeout: Duration) -> bool {
    try_lock(path.as_ref(), timeout).is_err_and(|error| is_busy(&error))
}

fn try_lock(path: &Path, timeout: Duration) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // Otherwise the last connection to close would checkpoint the log, which is a write.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(timeout)?;
    if connection.is_readonly("main")? {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;

    fn is_locked(path: &Path) -> bool {
        is_database_locked(path, Duration::ZERO)
    }

    #[test]
    fn lock_is_detected_while_it_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("capstan.db");
        assert!(!is_locked(&path) && !path.exists(), "no file is created");
        let _store = SqliteStore::open(&path).unwrap();
        assert!(!is_locked(&path));
        let other_program = Connection::open(&path).unwrap();
        other_program.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(is_locked(&path));
        other_program.execute_batch("ROLLBACK").unwrap();
        assert!(!is_locked(&path));
    }
}
