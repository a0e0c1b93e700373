//! Copies of a database that are kept before its schema is migrated.
//!
//! # Names
//!
//! The copy of schema version 7 of `capstan.db` is `capstan.db.v7`. It is written under a temporary name, synced, checked
//! and then renamed, so that a file with the final name is always complete.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use capstan_tape::StoreError;
use rusqlite::Connection;

use super::backup::{copy_database, parent_directory, sync_directory};
use super::error::store_error;
use super::fail_point::FailPoint;
use super::file_guard::sidecar;
use super::high_water_mark::count_entries;
use super::reader::open_reader;
use super::schema::read_version;

/// Copy of a database that a migration kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionCopy {
    /// File of the copy.
    pub path: PathBuf,
    /// Schema version of the copy.
    pub version: u32,
}

impl VersionCopy {
    /// Finds the copies of a database, newest schema first.
    pub fn find_all(database: impl AsRef<Path>) -> Result<Vec<Self>, StoreError> {
        let database = database.as_ref();
        let folder = parent_directory(database);
        let failed = |error| StoreError::io(format!("read {}", folder.display()), error);
        let Some(name) = database.file_name().and_then(|name| name.to_str()) else { return Ok(Vec::new()) };
        let prefix = format!("{name}.v");
        let files = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.map_err(failed)?,
        };
        let mut copies = Vec::new();
        for file in files {
            let path = file.map_err(failed)?.path();
            let version = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(&prefix));
            if let Some(version) = version.and_then(|version| version.parse().ok()) {
                copies.push(Self { path, version });
            }
        }
        copies.sort_by_key(|copy| std::cmp::Reverse(copy.version));
        Ok(copies)
    }
}

/// Keeps a checked copy of a database. The caller holds the write lock, so the copy is the state that is migrated.
///
/// An earlier copy of the same version is replaced: it was kept by a migration that did not complete, or was undone.
pub(super) fn keep_version_copy(database: &Path, version: usize) -> Result<PathBuf, StoreError> {
    let target = sidecar(database, &format!(".v{version}"));
    // `capstan doctor --repair` recognises this name, should the process be killed.
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let temporary = target.with_file_name(format!(".{name}.capstan-{}.new", std::process::id()));
    let written = write_checked_copy(database, &temporary, version).and_then(|()| publish(&temporary, &target));
    if written.is_err() {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            // The copy is incomplete; if it cannot be removed either, the next repair removes it.
            let _ignored = std::fs::remove_file(sidecar(&temporary, suffix));
        }
    }
    written.map_err(|error| match error {
        StoreError::DiskFull { .. } => {
            StoreError::DiskFull { what: format!("{}, the copy to keep before a migration,", target.display()) }
        }
        other => other,
    })?;
    tracing::warn!(
        copy = %target.display(),
        "the database is migrated to a newer schema; a copy is kept, and `capstan store rollback` returns to it"
    );
    Ok(target)
}

fn write_checked_copy(database: &Path, temporary: &Path, version: usize) -> Result<(), StoreError> {
    match std::fs::remove_file(temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(StoreError::io(format!("remove {}", temporary.display()), error));
        }
        _ => {}
    }
    let point = FailPoint::named("version-copy");
    point.before_commit();
    copy_database(database, temporary)?;
    point.after_commit();
    check_copy(database, temporary, version)
}

/// Checks that a copy is readable, undamaged and has as many entries as the database.
fn check_copy(database: &Path, copy: &Path, version: usize) -> Result<(), StoreError> {
    let count = |path: &Path| {
        let connection = open_reader(path)?;
        count_entries(&connection).map_err(|error| store_error(path, &error))
    };
    let connection = open_reader(copy)?;
    let found = read_version(&connection, copy)?;
    let report = integrity_report(&connection).map_err(|error| store_error(copy, &error))?;
    if report != "ok" {
        let detail = format!("a copy of it is damaged, so it is not migrated: {report}");
        return Err(StoreError::corrupt_file(database.display().to_string(), detail));
    }
    if usize::try_from(found).ok() != Some(version) || count(copy)? != count(database)? {
        return Err(StoreError::corrupt_file(copy.display().to_string(), "it differs from the database"));
    }
    Ok(())
}

/// First line of the check of `SQLite`; `ok` if there is no damage.
pub(super) fn integrity_report(connection: &Connection) -> rusqlite::Result<String> {
    connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
}

fn publish(temporary: &Path, target: &Path) -> Result<(), StoreError> {
    let point = FailPoint::named("version-copy-rename");
    point.before_commit();
    std::fs::rename(temporary, target)
        .and_then(|()| sync_directory(target))
        .map_err(|error| StoreError::io(format!("write {}", target.display()), error))?;
    point.after_commit();
    Ok(())
}
