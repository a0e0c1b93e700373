//! Read-only connections, also for databases that cannot be written.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use capstan_tape::StoreError;
use rusqlite::{Connection, OpenFlags};

use super::error::store_error;
use super::schema::configure_connection;

/// Minimum size of the shared-memory file of an open database. A smaller one was left by a process whose disk was full.
const MIN_SHM_BYTES: u64 = 32 * 1024;
const READER_OPEN_FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Opens a read-only connection, which never needs a lock that a writer holds.
///
/// Reading concurrently with a writer needs a log and a shared-memory file next to the database. If these cannot be
/// created, because the directory is read-only or the disk is full, a database that no process has open is read as an
/// immutable file. So is a read-only database: the files would be read-only too, and block a later writer.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let failed = |error: rusqlite::Error| store_error(path, &error);
    let is_open = has_sidecar_file(path, "-wal", 1) || has_sidecar_file(path, "-shm", MIN_SHM_BYTES);
    if !is_open && is_read_only(path).map_err(failed)? {
        return open_immutable(path).map_err(failed);
    }
    let connection = Connection::open_with_flags(path, READER_OPEN_FLAGS).map_err(failed)?;
    configure_connection(&connection).map_err(failed)?;
    match force_first_read(&connection).map_err(failed) {
        Ok(()) => Ok(connection),
        Err(StoreError::ReadOnly { .. } | StoreError::DiskFull { .. } | StoreError::NoInodes { .. }) if !is_open => {
            open_immutable(path).map_err(failed)
        }
        Err(StoreError::ReadOnly { .. }) => {
            let detail = "it was not closed properly and must be opened for writing before it can be read";
            Err(StoreError::read_only(path.display().to_string(), detail))
        }
        Err(error) => Err(error),
    }
}

/// Returns true if this user may not write the database. Reads nothing, so that no files are created next to it.
fn is_read_only(path: &Path) -> rusqlite::Result<bool> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)?.is_readonly("main")
}

/// Opens a database that no process has open, as an immutable file.
fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let address = format!("file:{}?immutable=1", percent_encode(path.as_os_str()));
    let connection = Connection::open_with_flags(address, READER_OPEN_FLAGS | OpenFlags::SQLITE_OPEN_URI)?;
    configure_connection(&connection)?;
    force_first_read(&connection)?;
    Ok(connection)
}

/// Makes `SQLite` open its files, which it otherwise defers to the first read.
pub(super) fn force_first_read(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Returns true if the file next to the database has the minimum size that it has while the database is open, or after
/// its process died.
pub(super) fn has_sidecar_file(path: &Path, suffix: &str, min_bytes: u64) -> bool {
    let mut sidecar = path.as_os_str().to_owned();
    sidecar.push(suffix);
    std::fs::metadata(sidecar).is_ok_and(|file| file.len() >= min_bytes)
}

/// Escapes a path for a URI.
fn percent_encode(path: &OsStr) -> String {
    let mut escaped = String::new();
    for byte in path.as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => escaped.push(char::from(*byte)),
            // Writing to a string cannot fail.
            _ => _ = write!(escaped, "%{byte:02X}"),
        }
    }
    escaped
}
