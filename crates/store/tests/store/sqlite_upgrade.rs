//! Copies before a migration, the way back, and databases of newer versions.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use capstan_protocol::{ChatMessage, EntryId, TapeName};
use capstan_store::{DatabaseSummary, SqliteStore, VersionCopy, copy_database, replace_database};
use capstan_tape::{
    Batch, EntryDraft, InboxStore as _, JournalStore as _, RESTORED_OWNER, Store, StoreError, TapeRepository, TapeSlice,
};
use rusqlite::Connection;
use tempfile::TempDir;

/// Variables that make [`child_process`] act instead of passing at once.
const CHILD_DATABASE: &str = "CAPSTAN_TEST_DATABASE";
const CHILD_SOURCE: &str = "CAPSTAN_TEST_SOURCE";

fn first_version_database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    Connection::open(&path).unwrap().execute_batch(include_str!("../data/version-1.sql")).unwrap();
    (directory, path)
}

fn fixture_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn version(path: &Path) -> u32 {
    DatabaseSummary::read(path).unwrap().version
}

fn file_names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs [`child_process`] in a process that kills itself at a fail point.
fn run_child(database: &Path, source: Option<&Path>, fail_at: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "sqlite_upgrade::child_process", "--ignored"])
        .env(CHILD_DATABASE, database)
        .env("CAPSTAN_FAIL_AT", fail_at);
    if let Some(source) = source {
        command.env(CHILD_SOURCE, source);
    }
    command.output().unwrap().status
}

/// Opens the database that [`run_child`] names, or replaces its content.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn child_process() {
    let Ok(database) = std::env::var(CHILD_DATABASE) else { return };
    match std::env::var(CHILD_SOURCE) {
        Ok(source) => replace_database(&database, &source, format!("{database}.replaced")).unwrap(),
        Err(_) => drop(SqliteStore::open(&database).unwrap()),
    }
}

#[tokio::test]
async fn x08_migration_keeps_a_private_copy_that_can_be_restored() {
    let (directory, path) = first_version_database();
    let before = DatabaseSummary::read(&path).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    let copies = VersionCopy::find_all(&path).unwrap();
    assert_eq!(copies, [VersionCopy { path: directory.path().join("capstan.db.v1"), version: 1 }]);
    let copy = &copies[0].path;
    assert_eq!(DatabaseSummary::read(copy).unwrap(), before);
    assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let kept = directory.path().join("kept.db");
    let busy = replace_database(&path, copy, &kept).unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }), "a store is open: {busy}");
    assert!(!kept.exists());
    drop(store);
    replace_database(&path, copy, &kept).unwrap();
    assert_eq!((version(&path), version(&kept)), (1, SqliteStore::SCHEMA_VERSION));
    assert_eq!(DatabaseSummary::read(&path).unwrap(), before);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.verify().await.unwrap(), [], "it is migrated again");
}

#[test]
fn x08_new_database_needs_no_copy() {
    let directory = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(directory.path().join("capstan.db")).unwrap());
    assert_eq!(file_names(directory.path()), ["capstan.db"]);
}

#[test]
fn x08_database_is_not_migrated_if_the_copy_cannot_be_made() {
    let (directory, path) = first_version_database();
    // A file cannot be renamed to the name of a directory.
    std::fs::create_dir(directory.path().join("capstan.db.v1")).unwrap();
    assert!(SqliteStore::open(&path).is_err());
    assert_eq!(version(&path), 1);
    assert!(!file_names(directory.path()).iter().any(|name| name.contains(".new")), "the temporary file is removed");
}

#[cfg(feature = "fail-points")]
#[tokio::test]
async fn x08_killed_migration_leaves_a_database_that_opens() {
    for step in ["version-copy", "version-copy-rename", "migration"] {
        for moment in ["before", "after"] {
            let (_directory, path) = first_version_database();
            let before = DatabaseSummary::read(&path).unwrap();
            let status = run_child(&path, None, &format!("{step}#1 {moment}"));
            assert_eq!(status.signal(), Some(9), "{step} {moment}");
            let is_migrated = (step, moment) == ("migration", "after");
            assert_eq!(version(&path), if is_migrated { SqliteStore::SCHEMA_VERSION } else { 1 }, "{step} {moment}");
            let store = SqliteStore::open(&path).unwrap();
            assert_eq!(store.verify().await.unwrap(), [], "{step} {moment}");
            let copies = VersionCopy::find_all(&path).unwrap();
            assert_eq!(DatabaseSummary::read(&copies[0].path).unwrap(), before, "{step} {moment}");
        }
    }
}

#[cfg(feature = "fail-points")]
#[tokio::test]
async fn x08_killed_rollback_leaves_the_old_or_the_new_content() {
    for step in ["keep-replaced", "replace-content"] {
        for moment in ["before", "after"] {
            let (directory, path) = first_version_database();
            drop(SqliteStore::open(&path).unwrap());
            let copy = directory.path().join("capstan.db.v1");
            let status = run_child(&path, Some(&copy), &format!("{step}#1 {moment}"));
            assert_eq!(status.signal(), Some(9), "{step} {moment}");
            let is_replaced = (step, moment) == ("replace-content", "after");
            assert_eq!(version(&path), if is_replaced { 1 } else { SqliteStore::SCHEMA_VERSION }, "{step} {moment}");
            assert_eq!(version(&copy), 1, "the copy stays");
            assert_eq!(SqliteStore::open(&path).unwrap().verify().await.unwrap(), [], "{step} {moment}");
        }
    }
}

#[test]
fn x08_rollback_leaves_no_work_that_an_older_version_would_repeat() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    std::fs::copy(fixture_path("schema-7.db"), &path).unwrap();
    drop(SqliteStore::open(&path).unwrap());
    replace_database(&path, directory.path().join("capstan.db.v7"), directory.path().join("kept.db")).unwrap();
    assert_eq!(version(&path), 7);
    let in_flight = "SELECT event_id, owner, adoptions FROM in_flight";
    let connection = Connection::open(&path).unwrap();
    let row: (String, String, u32) =
        connection.query_row(in_flight, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    // The owner tells this version, and the number of recoveries an older one, to give the event up.
    assert_eq!(row, ("killed".to_owned(), RESTORED_OWNER.to_owned(), 3));
}

#[tokio::test]
async fn x08_database_of_a_newer_version_can_be_read_and_copied_but_not_written() {
    let (directory, path) = first_version_database();
    drop(SqliteStore::open(&path).unwrap());
    let newer = SqliteStore::SCHEMA_VERSION + 1;
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("ALTER TABLE tapes ADD COLUMN later TEXT; CREATE TABLE later (x INTEGER)").unwrap();
    connection.pragma_update(None, "user_version", newer).unwrap();
    drop(connection);

    assert!(matches!(SqliteStore::open(&path).err(), Some(StoreError::SchemaTooNew { .. })));
    let store = SqliteStore::open_with_read_only_fallback(&path).unwrap();
    let tapes = store.tape_page(None, 10).await.unwrap();
    assert!(!store.read(&tapes[0].name, &TapeSlice::all()).await.unwrap().is_empty());
    let mut batch = Batch::new();
    batch.append(&TapeName::parse("t").unwrap(), EntryDraft::message(&ChatMessage::user("new")));
    assert!(matches!(store.commit(batch).await, Err(StoreError::SchemaTooNew { .. })));
    let copy = directory.path().join("copy.db");
    copy_database(&path, &copy).unwrap();
    assert_eq!(DatabaseSummary::read(&copy).unwrap(), DatabaseSummary::read(&path).unwrap());
}

#[tokio::test]
async fn x08_database_of_every_schema_is_verified_and_continued() {
    let fixtures = file_names(&fixture_path("")).into_iter().filter(|name| name.starts_with("schema-"));
    let mut versions = Vec::new();
    for fixture in fixtures {
        versions.push(continue_fixture(&fixture).await);
    }
    // Schema 1 has tests of its own, and no binary of 2 to 6 was released.
    let expected: Vec<u32> = (7..=SqliteStore::SCHEMA_VERSION).collect();
    assert_eq!(versions, expected, "a new schema needs a fixture of the previous one");
}

/// Migrates, verifies and continues a fixture, and returns its version.
async fn continue_fixture(fixture: &str) -> u32 {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    std::fs::copy(fixture_path(fixture), &path).unwrap();
    let before = DatabaseSummary::read(&path).unwrap();
    assert_eq!((before.tapes, before.events), (4, 5), "{fixture}");

    let store = Arc::new(SqliteStore::open(&path).unwrap());
    assert_eq!(store.verify().await.unwrap(), []);
    assert_eq!(version(&path), SqliteStore::SCHEMA_VERSION);
    let tapes = TapeRepository::new(Arc::clone(&store) as Arc<dyn Store>);
    let fork = TapeName::parse("fork-of-a").unwrap();
    assert_eq!(tapes.read(&fork, &TapeSlice::all()).await.unwrap().len(), 20, "with the entries of its parent");
    let reset = tapes.list().await.unwrap().into_iter().find(|record| record.generation == 2).unwrap();
    assert!(!tapes.read_generation(&reset.name, 1, &TapeSlice::all()).await.unwrap().is_empty());
    let in_flight = store.in_flight_page(None, None, 10).await.unwrap();
    assert_eq!(in_flight.iter().map(|event| event.key.event_id.as_str()).collect::<Vec<_>>(), ["killed"]);

    let mut batch = Batch::new();
    batch.append(&fork, EntryDraft::message(&ChatMessage::user("continued")));
    tapes.commit(batch).await.unwrap();
    let last = tapes.read(&fork, &TapeSlice::last()).await.unwrap().pop().unwrap();
    assert_eq!((last.id, last.payload["content"].as_str()), (EntryId(21), Some("continued")));
    assert_eq!(store.verify().await.unwrap(), []);
    before.version
}
