//! Whether a database is locked.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::SqliteStore;
use super::schema::is_busy;

impl SqliteStore {
    /// Whether somebody writes to a database, or keeps it locked, for as long as this. Nothing is written.
    ///
    /// Of one that cannot be opened to be written this is not known, and the answer is no.
    pub fn is_locked(path: impl AsRef<Path>, wait: Duration) -> bool {
        try_lock(path.as_ref(), wait).is_err_and(|error| is_busy(&error))
    }
}

fn try_lock(path: &Path, wait: Duration) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // Else whoever closes a database last writes its log into it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(wait)?;
    if connection.is_readonly("main")? {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_locked(path: &Path) -> bool {
        SqliteStore::is_locked(path, Duration::ZERO)
    }

    #[test]
    fn a_lock_is_noticed_while_it_lasts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("capstan.db");
        assert!(!is_locked(&path) && !path.exists(), "and no file is made");
        let _store = SqliteStore::open(&path).unwrap();
        assert!(!is_locked(&path));
        let other_program = Connection::open(&path).unwrap();
        other_program.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(is_locked(&path));
        other_program.execute_batch("ROLLBACK").unwrap();
        assert!(!is_locked(&path));
    }
}
