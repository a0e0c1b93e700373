//! A connection that only reads, and what it needs of the disk.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use capstan_tape::StoreError;
use rusqlite::{Connection, OpenFlags};

use super::error::store_error;
use super::schema::configure_connection;

/// The least that whoever has a database open has in the index of its log. Less is left by somebody who found no room for it.
const MIN_SHM_BYTES: u64 = 32 * 1024;
const READER_OPEN_FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Opens a connection that only reads. It never needs a lock that a writer holds.
///
/// To read beside a writer takes files beside the database. Where they cannot be made, because the folder is read-only
/// or the disk full, a database that nobody has open is read as the one file that it then is. So is one that is itself
/// read-only: the files would be so too, and be in the way of whoever may write it later.
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
        Err(StoreError::ReadOnly { .. } | StoreError::DiskFull { .. }) if !is_open => {
            open_immutable(path).map_err(failed)
        }
        Err(StoreError::ReadOnly { .. }) => {
            let detail = "it was not closed, and has to be written to before it can be read";
            Err(StoreError::read_only(path.display().to_string(), detail))
        }
        Err(error) => Err(error),
    }
}

/// Whether this user may not write a database. Nothing is read, so nothing is made beside it.
fn is_read_only(path: &Path) -> rusqlite::Result<bool> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)?.is_readonly("main")
}

/// Opens a database that nobody has open, and takes it for a file that does not change.
fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let address = format!("file:{}?immutable=1", percent_encode(path.as_os_str()));
    let connection = Connection::open_with_flags(address, READER_OPEN_FLAGS | OpenFlags::SQLITE_OPEN_URI)?;
    configure_connection(&connection)?;
    force_first_read(&connection)?;
    Ok(connection)
}

/// Makes `SQLite` open what it needs, which it puts off until the first read.
pub(super) fn force_first_read(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Whether there is as much in a file as belongs to a database that is open, or was when its process died.
pub(super) fn has_sidecar_file(path: &Path, suffix: &str, bytes: u64) -> bool {
    let mut beside = path.as_os_str().to_owned();
    beside.push(suffix);
    std::fs::metadata(beside).is_ok_and(|file| file.len() >= bytes)
}

/// A path as part of an address.
fn percent_encode(path: &OsStr) -> String {
    let mut escaped = String::new();
    for byte in path.as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => escaped.push(char::from(*byte)),
            // A string takes whatever it is given.
            _ => _ = write!(escaped, "%{byte:02X}"),
        }
    }
    escaped
}
