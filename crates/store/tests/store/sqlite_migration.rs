//! Migration of a database from the first schema version to the latest one, in place.
//!
//! `data/version-1.sql` was written by that version: three settled events, and one whose process was killed while its
//! command ran.

use capstan_protocol::{EntryId, EventId};
use capstan_store::SqliteStore;
use capstan_tape::{EntryOrder, JournalStore as _, RunStatus, Store, TapeRepository, TapeSlice};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

fn first_version_database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(include_str!("../data/version-1.sql")).unwrap();
    (directory, path)
}

/// Columns of a table in the first version.
fn first_version_columns(table: &str) -> Vec<String> {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(include_str!("../data/version-1.sql")).unwrap();
    let statement = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
    statement.column_names().map(str::to_owned).collect()
}

/// Dumps every row of the tables of the first version as text.
fn dump_rows(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let tables = ["tapes", "entries", "inbox", "outcomes", "runs", "outbox", "blobs", "state", "workspaces", "leases"];
    let mut rows = Vec::new();
    for table in tables {
        let columns = first_version_columns(table);
        let mut statement = connection.prepare(&format!("SELECT {} FROM {table}", columns.join(", "))).unwrap();
        let mut found = statement.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            // A column that a later version added is null in these rows.
            let cell = |column: &String| match row.get_ref(column.as_str()).unwrap() {
                ValueRef::Null => None,
                ValueRef::Text(text) | ValueRef::Blob(text) => {
                    Some(format!("{column}={}", String::from_utf8_lossy(text)))
                }
                number => Some(format!("{column}={number:?}")),
            };
            rows.push(format!("{table}: {}", columns.iter().filter_map(cell).collect::<Vec<_>>().join(", ")));
        }
    }
    rows
}

#[tokio::test]
async fn x02_database_of_the_first_version_migrates_in_place_and_loses_nothing() {
    let (_directory, path) = first_version_database();
    let before = dump_rows(&path);
    assert!(before.len() > 30, "the sample has rows: {}", before.len());
    let store = SqliteStore::open(&path).unwrap();
    let version = Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0));
    assert_eq!(version, Ok(SqliteStore::SCHEMA_VERSION));
    assert_eq!(store.verify().await.unwrap(), []);
    drop(store);
    assert_eq!(dump_rows(&path), before, "existing rows are unchanged");
}

#[tokio::test]
async fn p01_missing_entry_after_the_first_event_of_the_first_version_is_reported() {
    let (_directory, path) = first_version_database();
    let connection = Connection::open(&path).unwrap();
    let next = "(SELECT min(entry) + 1 FROM inbox WHERE inbox.tape = entries.tape)";
    let deleted = connection.execute(&format!("DELETE FROM entries WHERE id = {next}"), []).unwrap();
    assert_eq!(deleted, 2, "one entry of each tape");
    let problems = SqliteStore::open(&path).unwrap().verify().await.unwrap();
    let is_missing = |problem: &capstan_tape::IntegrityProblem| problem.message.ends_with(" is missing");
    assert_eq!(problems.iter().filter(|problem| is_missing(problem)).count(), deleted, "{problems:?}");
}

#[tokio::test]
async fn x01_unsettled_events_of_the_first_version_are_in_flight() {
    let (_directory, path) = first_version_database();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).unwrap());
    assert_eq!(store.settled_events().collect().await.unwrap().len(), 3);
    let in_flight = store.in_flight_events(None).collect().await.unwrap();
    let [event] = in_flight.as_slice() else { panic!("{in_flight:?}") };
    assert_eq!((event.owner.as_ref(), event.adoptions, &event.ingestion), (None, 0, &None));
    let running = store.open_runs().collect().await.unwrap();
    let [run] = running.as_slice() else { panic!("{running:?}") };
    assert_eq!((run.status, &run.event), (RunStatus::Running, &event.key));
    assert!(run.bypasses_host, "the effects of the run are unknown");
    let ended = store.run_page(None, 10).await.unwrap();
    assert_eq!(
        ended.iter().filter(|run| run.status == RunStatus::Completed).count(),
        3,
        "ended runs keep their status"
    );

    let tapes = TapeRepository::new(Arc::clone(&store));
    let slice = TapeSlice { after: Some(EntryId(event.entry.0 - 1)), up_to: Some(event.entry), ..TapeSlice::default() };
    let entries = tapes.read(&event.tape, &slice).await.unwrap();
    let id = entries[0].payload["data"]["event"]["event_id"].as_str().map(EventId::new);
    assert_eq!(id, Some(event.key.event_id.clone()), "its entry has the event");
    let newest = TapeSlice { order: EntryOrder::NewestFirst, limit: Some(1), ..TapeSlice::all() };
    assert_eq!(tapes.read(&event.tape, &newest).await.unwrap().len(), 1);
}
