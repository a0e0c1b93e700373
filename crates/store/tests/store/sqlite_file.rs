//! File of a SQLite store: creation, reopening, rejection and integrity checks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{all, ids, messages, name, texts};
use capstan_protocol::{EntryId, EventKey, Outcome, Timestamp, WorkspaceId};
use capstan_store::{SqliteOptions, SqliteStore};
use capstan_tape::{
    Batch, BlobStore as _, EntryRef, Fact, Fence, InboxStore as _, JournalStore as _, KeyValueStore as _,
    LeaseStore as _, StoreError, TapeRepository, TapeSlice, blob_hash,
};
use rusqlite::Connection;
use tempfile::TempDir;

fn temp_database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    (directory, path)
}

fn open_error(path: &Path) -> StoreError {
    SqliteStore::open(path).err().expect("the file is rejected")
}

#[tokio::test]
async fn x02_commits_survive_a_reopen() {
    let (_directory, path) = temp_database();
    let tape = name("t");
    let store = SqliteStore::open(&path).unwrap();
    store.commit(messages(&tape, &["one", "two"])).await.unwrap();
    let mut batch = Batch::new();
    batch.push(Fact::PutBlob { hash: blob_hash(b"x"), bytes: b"x".as_slice().into() });
    batch.push(Fact::ResetTape { tape: tape.clone(), archive: true });
    store.commit(batch).await.unwrap();
    let before = store.tape(&tape).await.unwrap();
    drop(store);

    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.tape(&tape).await.unwrap(), before);
    assert_eq!(texts(&all(&store, &tape).await), ["one", "two"]);
    assert_eq!(store.blob(&blob_hash(b"x")).await.unwrap(), Some(b"x".to_vec()));
    store.commit(messages(&tape, &["three"])).await.unwrap();
    assert_eq!(ids(&all(&store, &tape).await), [1, 2, 3]);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn x02_database_of_a_killed_process_has_its_last_commit() {
    let (directory, path) = temp_database();
    let tape = name("t");
    let store = SqliteStore::open(&path).unwrap();
    store.commit(messages(&tape, &["one"])).await.unwrap();
    // A killed process leaves the file and its log behind.
    let copy = directory.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    std::fs::copy(path.with_extension("db-wal"), copy.with_extension("db-wal")).unwrap();
    let copied = SqliteStore::open(&copy).unwrap();
    assert_eq!(texts(&all(&copied, &tape).await), ["one"]);
    assert_eq!(copied.verify().await.unwrap(), []);
}

#[test]
fn d11_new_database_is_in_wal_mode_and_has_the_application_id() {
    let (_directory, path) = temp_database();
    std::fs::write(&path, b"").unwrap();
    drop(SqliteStore::open(&path).expect("an empty file becomes a database"));
    let connection = Connection::open(&path).unwrap();
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0));
    assert_eq!(pragma("journal_mode").unwrap(), "wal".to_owned().into());
    assert_eq!(pragma("application_id").unwrap(), 0x4350_5354_i64.into());
    assert_eq!(pragma("user_version").unwrap(), i64::from(SqliteStore::SCHEMA_VERSION).into());
}

#[tokio::test]
async fn database_at_version_0_is_migrated() {
    let (_directory, path) = temp_database();
    Connection::open(&path).unwrap().pragma_update(None, "application_id", 0x4350_5354).unwrap();
    let (store, tape) = (SqliteStore::open(&path).unwrap(), name("t"));
    store.commit(messages(&tape, &["one"])).await.unwrap();
    assert_eq!(texts(&all(&store, &tape).await), ["one"]);
    assert_eq!(store.verify().await.unwrap(), []);
    drop(store);
    let version = Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0));
    assert_eq!(version, Ok(SqliteStore::SCHEMA_VERSION));
}

#[test]
fn newer_database_is_rejected_and_not_changed() {
    let (_directory, path) = temp_database();
    drop(SqliteStore::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let what = path.display().to_string();
    assert_eq!(open_error(&path), StoreError::SchemaTooNew { what, found: 99, known: SqliteStore::SCHEMA_VERSION });
    let version = Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0));
    assert_eq!(version, Ok(99_i32));
}

#[test]
fn file_that_is_no_database_is_rejected_and_not_changed() {
    let (_directory, path) = temp_database();
    let text = "this is a shopping list ".repeat(200);
    std::fs::write(&path, &text).unwrap();
    let error = open_error(&path);
    assert!(matches!(&error, StoreError::Corrupt { what, .. } if *what == path.display().to_string()), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn database_of_another_program_is_rejected_and_not_changed() {
    let (_directory, path) = temp_database();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE songs (title)").unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = open_error(&path);
    assert!(matches!(&error, StoreError::Corrupt { detail, .. } if detail.contains("another program")), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn error_names_a_path_that_cannot_be_opened() {
    let (directory, _) = temp_database();
    let missing = directory.path().join("no/such/capstan.db");
    for path in [missing.as_path(), directory.path()] {
        let error = open_error(path);
        let is_named = error.to_string().contains(&path.display().to_string());
        assert!(matches!(error, StoreError::Io { .. }) && is_named, "{error}");
    }
}

#[tokio::test]
async fn x02_verify_finds_a_damaged_page() {
    let (_directory, path) = temp_database();
    let tape = name("t");
    let store = SqliteStore::open(&path).unwrap();
    let long = "x".repeat(3_000);
    store.commit(messages(&tape, &[long.as_str(); 20])).await.unwrap();
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.windows(64).position(|window| window == [b'x'; 64]).unwrap() / 4096 * 4096;
    bytes[middle..middle + 64].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    match store.verify().await {
        Ok(problems) => assert!(!problems.is_empty()),
        Err(error) => assert!(matches!(error, StoreError::Corrupt { .. }), "{error}"),
    }
}

#[tokio::test]
async fn p15_verify_names_inconsistent_rows() {
    let (_directory, path) = temp_database();
    let tape = name("t");
    let store = SqliteStore::open(&path).unwrap();
    store.commit(messages(&tape, &["one", "two", "three"])).await.unwrap();
    let mut fork = Batch::new();
    fork.push(Fact::ForkTape { fork: name("f"), parent: tape.clone(), position: EntryId(3) });
    fork.push(Fact::PutBlob { hash: blob_hash(b"x"), bytes: b"x".as_slice().into() });
    store.commit(fork).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch(
            "UPDATE tapes SET head = 2 WHERE name = 't'; \
             UPDATE entries SET payload = '{\"role\": ' WHERE id = 1; \
             UPDATE blobs SET bytes = x'00';",
        )
        .unwrap();
    let found: Vec<String> = store.verify().await.unwrap().into_iter().map(|problem| problem.message).collect();
    for expected in [
        "it was forked at 3, but its parent ends at 2",
        "entry 3 is outside of the tape's range",
        "entry 1 cannot be read",
        "is damaged",
    ] {
        assert!(found.iter().any(|message| message.contains(expected)), "{expected:?} is not in {found:#?}");
    }
    let error = store.read(&tape, &TapeSlice::all()).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

#[test]
fn x02_diagnosis_of_an_open_failure_changes_no_other_file() {
    let (directory, path) = temp_database();
    let other_file = directory.path().join("capstan.db-probe");
    std::fs::write(&other_file, "of another program").unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(SqliteStore::open(&path), Err(StoreError::Io { .. })));
    assert_eq!(std::fs::read_to_string(&other_file).unwrap(), "of another program");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "no probe file is left");
}

#[tokio::test]
async fn p01_verify_reports_missing_entries() {
    let (_directory, path) = temp_database();
    let store = SqliteStore::open(&path).unwrap();
    store.commit(messages(&name("t"), &["one", "two", "three", "four"])).await.unwrap();
    let delete = |condition: &str| {
        Connection::open(&path).unwrap().execute_batch(&format!("DELETE FROM entries WHERE {condition}")).unwrap();
    };
    for (condition, expected) in [
        ("id = 2", &["entry 2 is missing"][..]),
        ("id = 4", &["entry 2 is missing", "entry 4 is missing"]),
        ("true", &["entries 1 to 4 are missing"]),
    ] {
        delete(condition);
        let found: Vec<String> = store.verify().await.unwrap().into_iter().map(|problem| problem.message).collect();
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn x04_lease_outlives_its_store() {
    let (_directory, path) = temp_database();
    let tape = name("t");
    let lease_for = |owner: &str, now| {
        let (now, expires_at) = (Timestamp::from_millis(now), Timestamp::from_millis(100));
        let mut batch = Batch::new();
        batch.push(Fact::TakeLease { tape: name("t"), owner: owner.into(), now, expires_at, owner_liveness: None });
        batch
    };
    let first = SqliteStore::open(&path).unwrap();
    first.commit(lease_for("a", 0)).await.unwrap();
    drop(first);
    let second = SqliteStore::open(&path).unwrap();
    second.commit(lease_for("b", 200)).await.unwrap();
    let epoch = second.lease(&tape).await.unwrap().unwrap().epoch;
    assert_eq!(epoch, capstan_tape::LeaseEpoch(2));
    let stale = Fence { tape: tape.clone(), epoch: capstan_tape::LeaseEpoch(1) };
    let batch = Batch { fence: Some(stale), ..messages(&tape, &["too late"]) };
    let tapes = TapeRepository::new(std::sync::Arc::new(second));
    let error = tapes.commit(batch).await.unwrap_err();
    assert_eq!(error, StoreError::Fenced { tape });
    assert_eq!(error.to_string(), "the lease of tape t was taken over: this writer may no longer write to it");
}

#[tokio::test]
async fn x02_rows_are_written_by_column_name() {
    let (_directory, path) = temp_database();
    let store = SqliteStore::open(&path).unwrap();
    let tables =
        ["tapes", "entries", "inbox", "outcomes", "in_flight", "blobs", "state", "workspaces", "leases", "payloads"];
    for table in tables {
        let add_column = format!("ALTER TABLE {table} ADD COLUMN of_a_later_version TEXT");
        Connection::open(&path).unwrap().execute_batch(&add_column).unwrap();
    }
    let (tape, at) = (name("t"), Timestamp::from_millis(0));
    let key = EventKey { source: "phone".into(), bot_id: String::new(), event_id: "1".into() };
    // Long enough for an external payload.
    let mut batch = messages(&tape, &["one", &"long ".repeat(10_000)]);
    let (session, owner, entry) = ("s".into(), "host".to_owned(), EntryRef::InBatch(1));
    batch.push(Fact::AcceptEvent {
        key: key.clone(),
        session,
        tape: tape.clone(),
        entry,
        accepted_at: at,
        owner: owner.clone(),
    });
    batch.push(Fact::SettleEvent { key: key.clone(), outcome: Outcome::Silent, run_id: None });
    batch.push(Fact::PutBlob { hash: blob_hash(b"x"), bytes: b"x".as_slice().into() });
    batch.push(Fact::PutState { tape: tape.clone(), key: "k".to_owned(), value: "v".into() });
    batch.push(Fact::RegisterWorkspace { path: "/w".to_owned(), identity: WorkspaceId::new("/w") });
    batch.push(Fact::TakeLease {
        tape: tape.clone(),
        owner: owner.clone(),
        now: at,
        expires_at: at,
        owner_liveness: None,
    });
    store.commit(batch).await.unwrap();
    assert_eq!(ids(&all(&store, &tape).await), [1, 2]);
    let accepted = store.inbox_record(&key).await.unwrap().unwrap();
    assert_eq!(
        (accepted.tape, accepted.entry, accepted.outcome),
        (tape.clone(), EntryId(1), Some((Outcome::Silent, None)))
    );
    assert_eq!(store.lease(&tape).await.unwrap().unwrap().owner, Some(owner));
    assert_eq!(store.state(&tape).await.unwrap()["k"], "v");
    assert_eq!(store.workspace("/w").await.unwrap(), Some(WorkspaceId::new("/w")));
}

#[tokio::test]
async fn x01_database_behind_a_symbolic_link_is_written_and_synced() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (link, file) = (folder.path().join("capstan.db"), other.path().join("elsewhere.db"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let store = SqliteStore::open(&link).unwrap();
    store.commit(messages(&name("t"), &["hello"])).await.unwrap();
    drop(store);
    assert_eq!(texts(&all(&SqliteStore::open(&file).unwrap(), &name("t")).await), ["hello"]);
}

/// Reader that keeps the log, which then grows far beyond the length of a checkpoint.
fn grow_log_beside_reader(path: &Path) -> Connection {
    let [reader, writer] = [Connection::open(path).unwrap(), Connection::open(path).unwrap()];
    reader.execute_batch("BEGIN; SELECT count(*) FROM tapes").unwrap();
    writer.execute_batch("CREATE TABLE scratch (x); INSERT INTO scratch VALUES (zeroblob(1000000))").unwrap();
    reader
}

fn log_bytes(path: &Path) -> u64 {
    path.with_extension("db-wal").metadata().map_or(0, |log| log.len())
}

fn short_log_options() -> SqliteOptions {
    let log_check_interval = Duration::from_millis(20);
    SqliteOptions { wal_checkpoint_pages: 8, log_check_interval, ..SqliteOptions::default() }
}

async fn wait_for_short_log(path: &Path) {
    while log_bytes(path) > 100_000 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn x02_log_that_grew_beside_a_reader_is_truncated_when_the_reader_leaves() {
    let (_directory, path) = temp_database();
    let store = SqliteStore::open_with(&path, short_log_options()).unwrap();
    let reader = grow_log_beside_reader(&path);
    store.commit(messages(&name("t"), &["beside the reader"])).await.unwrap();
    assert!(log_bytes(&path) > 1_000_000);
    drop(reader);
    // No further commit: the host is idle.
    wait_for_short_log(&path).await;
}

#[tokio::test]
async fn x02_log_that_was_long_at_the_start_is_truncated_without_a_commit() {
    let (_directory, path) = temp_database();
    drop(SqliteStore::open(&path).unwrap());
    let reader = grow_log_beside_reader(&path);
    let _store = SqliteStore::open_with(&path, short_log_options()).unwrap();
    assert!(log_bytes(&path) > 1_000_000, "the reader keeps it");
    drop(reader);
    wait_for_short_log(&path).await;
}
