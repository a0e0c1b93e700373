//! Snapshots and copies of a database that is in use.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::support::{all, messages, name, texts};
use capstan_protocol::{Event, EventId, EventKey, OutboundMessage, SessionId, Timestamp};
use capstan_store::{SqliteStore, copy_database};
use capstan_tape::{
    Batch, EntryDraft, Fact, InboxStore as _, JournalStore as _, NewOutboxMessage, NewTape, OutboxId, OutboxStatus,
    StoreError,
};
use rusqlite::Connection;
use tempfile::TempDir;

fn temp_database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    (directory, path)
}

fn user_version(path: &Path) -> u32 {
    Connection::open(path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// Creates a database with the first schema version and one event in flight.
fn create_first_version(path: &Path) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(include_str!("../data/version-1.sql")).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
}

#[tokio::test]
async fn x01_snapshot_does_not_change_while_others_write() {
    let (_directory, path) = temp_database();
    let tape = name("t");
    let store = SqliteStore::open(&path).unwrap();
    store.commit(messages(&tape, &["one"])).await.unwrap();
    let snapshot = SqliteStore::open_snapshot(&path).unwrap();
    store.commit(messages(&tape, &["two"])).await.unwrap();
    assert_eq!(texts(&all(&snapshot, &tape).await), ["one"]);
    assert_eq!(snapshot.tape(&tape).await.unwrap().unwrap().head.0, 1);
    assert_eq!(snapshot.verify().await.unwrap(), []);
    assert_eq!(texts(&all(&SqliteStore::open_snapshot(&path).unwrap(), &tape).await), ["one", "two"]);
    let error = snapshot.commit(messages(&tape, &["three"])).await.unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
}

#[tokio::test]
async fn older_database_is_read_without_migrating_it() {
    let (directory, path) = temp_database();
    create_first_version(&path);
    let before = std::fs::read(&path).unwrap();
    assert_eq!(SqliteStore::read_schema_version(&path).unwrap(), Some(1));
    let snapshot = SqliteStore::open_snapshot(&path).unwrap();
    let in_flight = snapshot.in_flight_events(None).collect().await.unwrap();
    assert_eq!(in_flight.len(), 1, "a table of a newer version can be read");
    assert_eq!(snapshot.verify().await.unwrap(), []);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(user_version(&path), 1);
    let copy = directory.path().join("copy.db");
    copy_database(&path, &copy).unwrap();
    assert_eq!(user_version(&copy), 1, "copying does not migrate it either");
}

#[test]
fn schema_version_is_read_without_creating_a_file() {
    let (_directory, path) = temp_database();
    assert_eq!(SqliteStore::read_schema_version(&path).unwrap(), None);
    assert!(!path.exists());
    drop(SqliteStore::open(&path).unwrap());
    assert_eq!(SqliteStore::read_schema_version(&path).unwrap(), Some(SqliteStore::SCHEMA_VERSION));
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(SqliteStore::read_schema_version(&path), Err(StoreError::SchemaTooNew { found: 99, .. })));
    assert!(SqliteStore::open_snapshot(&path).is_ok(), "a newer database can be read");
    std::fs::write(&path, vec![b'x'; 5000]).unwrap();
    assert!(matches!(SqliteStore::read_schema_version(&path), Err(StoreError::Corrupt { .. })));
    assert!(matches!(SqliteStore::open_snapshot(&path), Err(StoreError::Corrupt { .. })));
}

#[tokio::test]
async fn copy_is_one_file_that_only_its_owner_can_read() {
    let (directory, path) = temp_database();
    let tape = name("t");
    let store = SqliteStore::open(&path).unwrap();
    store.commit(messages(&tape, &["one"])).await.unwrap();
    let folder = directory.path().join("copies");
    std::fs::create_dir(&folder).unwrap();
    let target = folder.join("copy.db");
    copy_database(&path, &target).unwrap();
    store.commit(messages(&tape, &["two"])).await.unwrap();
    let copy = SqliteStore::open_snapshot(&target).unwrap();
    assert_eq!(texts(&all(&copy, &tape).await), ["one"]);
    assert_eq!(copy.verify().await.unwrap(), []);
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "reading it leaves no other file");

    let error = copy_database(&path, &target).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "an existing file is not replaced: {error}");
    drop(copy);
    let opened = SqliteStore::open(&target).unwrap();
    opened.commit(messages(&tape, &["continued"])).await.unwrap();
    assert_eq!(texts(&all(&opened, &tape).await), ["one", "continued"]);
}

#[tokio::test]
async fn x03_undelivered_messages_are_counted() {
    let (_directory, path) = temp_database();
    let store = SqliteStore::open(&path).unwrap();
    let tape = name("t");
    for number in 1..=3 {
        let key =
            EventKey { source: "cli".into(), bot_id: String::new(), event_id: EventId::new(format!("e{number}")) };
        let at = Timestamp::from_millis(number * 1000);
        let mut batch = Batch::new();
        batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
        let entry = batch.append(&tape, EntryDraft::event("event.accepted", serde_json::Value::Null));
        let (session, owner) = (SessionId::new("s"), "o".to_owned());
        batch.push(Fact::AcceptEvent { key: key.clone(), session, tape: tape.clone(), entry, accepted_at: at, owner });
        let event = Event::message("cli", "local", "hello");
        let message = OutboundMessage::reply_to(&event, SessionId::new("s"), format!("reply {number}"));
        batch.push(Fact::EnqueueOutbound(NewOutboxMessage {
            message,
            event: key,
            staged_at: at,
            owner: "p".to_owned(),
        }));
        store.commit(batch).await.unwrap();
    }
    assert_eq!(store.dead_letters(5).await.unwrap().count, 0);
    for id in [1, 3] {
        let mut batch = Batch::new();
        let status = OutboxStatus::Undelivered { reason: "gone".to_owned() };
        batch.push(Fact::RecordDelivery { id: OutboxId(id), status });
        store.commit(batch).await.unwrap();
    }
    let found = SqliteStore::open_snapshot(&path).unwrap().dead_letters(1).await.unwrap();
    assert_eq!((found.count, found.oldest), (2, Some(Timestamp::from_millis(1000))));
    assert_eq!(found.newest.iter().map(|row| row.id).collect::<Vec<_>>(), [OutboxId(3)]);
}
