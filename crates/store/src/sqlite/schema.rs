//! Schema of the database: its migrations, and the checks before a file is opened.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use capstan_tape::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::SqliteOptions;
use super::chain;
use super::columns::to_sql_integer;
use super::error::{diagnose_write_error, store_error};
use super::fail_point::FailPoint;
use super::high_water_mark::HighWaterMark;
use super::reader;
use super::version_copy::keep_version_copy;
use crate::PRIVATE_FILE_MODE;

/// Application id (`CPST`) of Capstan databases. A file of another program is never changed.
const APPLICATION_ID: i32 = 0x4350_5354;
/// Default time that a statement waits for another process that writes.
pub(super) const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Default length of the log at which it is checkpointed: 16 MB.
pub(super) const DEFAULT_WAL_CHECKPOINT_PAGES: u32 = 4000;
/// Default interval between checks of a long log.
pub(super) const DEFAULT_LOG_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Size of a page, the default of `SQLite`.
const PAGE_BYTES: u64 = 4096;
/// Page cache of the writer. A transaction of many batches that does not fit is written twice.
const WRITER_CACHE_KIB: i64 = 8192;
/// Large enough for every statement of this crate, so that none is prepared twice.
const STATEMENT_CACHE_CAPACITY: usize = 64;

/// Migrations; the one at index `n` migrates a database from version `n` to `n + 1`. Only append to this list.
pub(super) const MIGRATIONS: [&str; 8] = [
    include_str!("schema/001.sql"),
    include_str!("schema/002.sql"),
    include_str!("schema/003.sql"),
    include_str!("schema/004.sql"),
    include_str!("schema/005.sql"),
    include_str!("schema/006.sql"),
    include_str!("schema/007.sql"),
    include_str!("schema/008.sql"),
];

/// Version whose migration also hashes the existing entries.
const CHAIN_VERSION: usize = 8;

/// Latest schema version.
#[expect(clippy::cast_possible_truncation, reason = "the number of migrations is small")]
pub(super) const LATEST_VERSION: u32 = MIGRATIONS.len() as u32;

/// Opens the connection of the writer and migrates the database to the latest version.
pub(super) fn open_writer(path: &Path, options: SqliteOptions) -> Result<Connection, StoreError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        return Err(StoreError::io(
            format!("open {}", path.display()),
            format!("there is no directory {}", directory.display()),
        ));
    }
    let failed = |error: rusqlite::Error| store_error(path, &error);
    if path.metadata().map_or_else(|error| error.kind() == ErrorKind::NotFound, |file| file.len() == 0) {
        refuse_lost_content(path)?;
    }
    create_private_file(path);
    let has_leftover_wal = path.canonicalize().is_ok_and(|file| reader::has_sidecar_file(&file, "-wal", 1));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    configure_connection(&connection).map_err(failed)?;
    connection.busy_timeout(options.busy_timeout).map_err(failed)?;
    if connection.is_readonly("main").map_err(failed)? {
        let read_only = || StoreError::read_only(path.display().to_string(), "this user may only read it");
        return Err(diagnose_write_error(path).unwrap_or_else(read_only));
    }
    let version = check_version(&connection, path)?;
    if version == 0 {
        refuse_lost_content(path)?;
    }
    enable_wal(&connection, options).map_err(failed)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    // The rules of a batch check referential integrity already; checking it again costs a tenth of the throughput.
    connection.pragma_update(None, "foreign_keys", false).map_err(failed)?;
    connection.pragma_update(None, "wal_autocheckpoint", options.wal_checkpoint_pages).map_err(failed)?;
    // A log that grew beside a long reader is cut when it is next restarted.
    connection
        .pragma_update(None, "journal_size_limit", to_sql_integer(max_idle_log_bytes(options)))
        .map_err(failed)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB).map_err(failed)?;
    if version < MIGRATIONS.len() {
        migrate_keeping_copy(&mut connection, path)?;
    }
    if has_leftover_wal {
        checkpoint_wal(&connection, options).map_err(failed)?;
    }
    // The first read creates the log.
    reader::force_first_read(&connection).map_err(failed)?;
    // The writer syncs the log itself, not with every commit.
    connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
    Ok(connection)
}

/// Refuses to begin again with an empty database if it had entries: their events would be served again.
fn refuse_lost_content(path: &Path) -> Result<(), StoreError> {
    // The mark only informs: without it the database works as well.
    match HighWaterMark::read_beside_file(path) {
        Ok(Some(HighWaterMark { entries: entries @ 1.., .. })) => {
            Err(StoreError::ContentLost { what: path.display().to_string(), entries })
        }
        _ => Ok(()),
    }
}

/// Creates a missing database file that only its owner may read, whatever the umask. `SQLite` gives the log and its index
/// the same permissions. A failure is left to `SQLite`, whose errors tell the cause.
fn create_private_file(path: &Path) {
    // Never opens an existing file: closing it again would release the locks of this process on the database.
    let created = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE_MODE).open(path);
    if let Err(error) = created.map(drop)
        && error.kind() != ErrorKind::AlreadyExists
    {
        tracing::debug!(path = %path.display(), %error, "cannot create the database file");
    }
}

/// Length of the log above which it is truncated when no reader needs it any more.
pub(super) fn max_idle_log_bytes(options: SqliteOptions) -> u64 {
    u64::from(options.wal_checkpoint_pages) * PAGE_BYTES
}

pub(super) fn configure_connection(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(DEFAULT_BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_CAPACITY);
    // Without this, a statement is planned again whenever another value is bound to its limit.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Switches the database to WAL mode. For an empty file `SQLite` ignores the busy timeout, so that two processes that
/// create the database at the same time need this retry loop.
fn enable_wal(connection: &Connection, options: SqliteOptions) -> rusqlite::Result<()> {
    let deadline = Instant::now() + options.busy_timeout;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            done => return done,
        }
    }
}

/// Checkpoints the log that a killed process left, before anything is appended to it.
///
/// After a failed sync the page cache may show writes that the disk has lost, and the checkpoint makes them durable.
/// Does not wait for locks: while other connections read or write, the log is left as it is, which only matters if the
/// process died because a sync had failed.
fn checkpoint_wal(connection: &Connection, options: SqliteOptions) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::ZERO)?;
    let is_blocked = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    connection.busy_timeout(options.busy_timeout)?;
    match is_blocked {
        // The next commit reports a disk that is still full.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => Ok(()),
        Err(error) if !is_busy(&error) => Err(error),
        Ok(false) => Ok(()),
        Ok(true) | Err(_) => {
            tracing::debug!("skipped the checkpoint of the log: other connections use the database");
            Ok(())
        }
    }
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Schema version of a Capstan database that this program knows; 0 for an empty file.
pub(super) fn check_version(connection: &Connection, path: &Path) -> Result<usize, StoreError> {
    let version = read_version(connection, path)?;
    match usize::try_from(version) {
        Ok(found) if found <= MIGRATIONS.len() => Ok(found),
        _ => Err(StoreError::SchemaTooNew { what: path.display().to_string(), found: version, known: LATEST_VERSION }),
    }
}

/// Schema version of a Capstan database, which may be newer than this program; 0 for an empty file.
pub(super) fn read_version(connection: &Connection, path: &Path) -> Result<u32, StoreError> {
    let failed = |error: rusqlite::Error| store_error(path, &error);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0)).map_err(failed);
    // The order matters: a process that creates the tables in between sets the id in the same transaction.
    let has_tables = number("SELECT count(*) FROM sqlite_schema")? > 0;
    if has_tables && number("PRAGMA application_id")? != APPLICATION_ID {
        let detail = "it is a SQLite database of another program";
        return Err(StoreError::corrupt(path.display().to_string(), detail));
    }
    number("PRAGMA user_version").map(i32::cast_unsigned)
}

/// Migrates the database of a home. A copy of it is kept first; without one it is not migrated.
fn migrate_keeping_copy(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    // The copy is next to the file that symbolic links lead to, like the log.
    let file = connection.path().map_or_else(|| path.to_path_buf(), PathBuf::from);
    migrate_with(connection, path, |version| match version {
        0 => Ok(()),
        _ => keep_version_copy(&file, version).map(drop),
    })
}

/// Migrates a private copy of a database.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    migrate_with(connection, path, |_| Ok(()))
}

/// Migrates a database in one transaction, after `prepare` was called with its version.
fn migrate_with(
    connection: &mut Connection,
    path: &Path,
    prepare: impl FnOnce(usize) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let failed = |error: rusqlite::Error| store_error(path, &error);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Another process may have migrated the database while this one waited for the lock.
    let version = check_version(&transaction, path)?;
    if version == MIGRATIONS.len() {
        return Ok(());
    }
    prepare(version)?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(version) {
        transaction.execute_batch(migration).map_err(failed)?;
        if index + 1 == CHAIN_VERSION {
            chain::chain_existing_entries(&transaction).map_err(failed)?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    transaction.pragma_update(None, "user_version", LATEST_VERSION).map_err(failed)?;
    let point = FailPoint::named("migration");
    point.before_commit();
    transaction.commit().map_err(failed)?;
    point.after_commit();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use capstan_protocol::{ChatMessage, EntryId, TapeName};
    use capstan_tape::{Batch, EntryDraft, Fact, JournalStore as _, NewTape, TapeSlice};
    use rusqlite::Connection;

    use super::{APPLICATION_ID, MIGRATIONS};
    use crate::SqliteStore;

    #[tokio::test]
    async fn x06_database_its_log_and_its_index_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("capstan.db");
        let store = SqliteStore::open(&path).unwrap();
        let mut batch = Batch::new();
        batch.push(Fact::EnsureTape(NewTape::without_session(TapeName::parse("t").unwrap())));
        store.commit(batch).await.unwrap();
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap();
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
        }
        assert!(path.with_extension("db-wal").exists() && path.with_extension("db-shm").exists());
    }

    /// Creates a database with an older schema version.
    fn create_database_of_version(version: usize, path: &std::path::Path, rows: &str) {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch(&MIGRATIONS[..version].concat()).unwrap();
        connection.execute_batch(rows).unwrap();
        connection.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        connection.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
    }

    #[tokio::test]
    async fn p01_migration_from_version_six_keeps_entries_and_large_payloads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("capstan.db");
        let rows = "
            INSERT INTO tapes (name, head, generation, begins_after, past, handed_over) VALUES ('t', 3, 1, 0, '[]', 0);
            INSERT INTO payloads VALUES ('h', '{\"role\":\"user\",\"content\":\"large\"}');
            INSERT INTO entries VALUES
                ('t', 1, 'anchor', 'a', '{\"name\":\"a\",\"state\":{}}', '{}', '2026-11-16', 5, '{}', NULL),
                ('t', 3, 'message', NULL, 'null', '{}', 'yesterday', NULL, '{\"x\":1}', 'h'),
                ('t', 2, 'message', NULL, '{\"role\":\"user\",\"content\":\"small\"}', '{\"m\":1}', '2026-11-16', 7, '{}', NULL);";
        create_database_of_version(6, &path, rows);
        let store = SqliteStore::open(&path).unwrap();
        let tape = TapeName::parse("t").unwrap();
        let mut batch = Batch::new();
        batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
        batch.append(&tape, EntryDraft::message(&ChatMessage::user("new")));
        store.commit(batch).await.unwrap();
        let entries = store.read(&tape, &TapeSlice::all()).await.unwrap();
        let contents: Vec<_> = entries.iter().map(|entry| (entry.id.0, entry.payload["content"].as_str())).collect();
        assert_eq!(contents, [(1, None), (2, Some("small")), (3, Some("large")), (4, Some("new"))]);
        assert_eq!((entries[1].meta["m"].as_u64(), entries[2].extra["x"].as_u64()), (Some(1), Some(1)));
        assert_eq!(entries[2].date.as_str(), "yesterday");
        assert_eq!(store.read(&tape, &TapeSlice::last_anchor()).await.unwrap()[0].id, EntryId(1));
        let indexes = "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'entries'";
        let connection = Connection::open(&path).unwrap();
        assert_eq!(connection.query_row(indexes, [], |row| row.get(0)), Ok(5));
    }

    #[tokio::test]
    async fn p17_migration_hashes_around_entries_that_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("capstan.db");
        let rows = "
            INSERT INTO tapes (name, head, generation, begins_after, past, handed_over, fork_parent, fork_position, fork_state)
            VALUES ('t', 3, 1, 0, '[]', 0, NULL, NULL, NULL), ('a-fork', 3, 1, 0, '[]', 0, 't', 2, 'open');
            INSERT INTO entries VALUES
                ('t', 1, 'message', NULL, '{}', '{}', 'undated', NULL, '{}', NULL),
                ('t', 2, 'message', NULL, 'torn', '{}', 'undated', NULL, '{}', NULL),
                ('t', 3, 'anchor', 'other', '{\"name\":\"a\"}', '{}', '2026-11-16', 5, '{}', NULL),
                ('a-fork', 3, 'message', NULL, '{}', '{}', 'undated', NULL, '{}', NULL);";
        create_database_of_version(7, &path, rows);
        let store = SqliteStore::open(&path).unwrap();
        let problems = store.verify().await.unwrap();
        let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert!(messages.len() == 1 && messages[0].starts_with("entry 2 cannot be read"), "{messages:?}");
        let tape = TapeName::parse("t").unwrap();
        assert_eq!(store.chain_page(&tape, EntryId(0), 10).await.unwrap().len(), 3);
    }
}
