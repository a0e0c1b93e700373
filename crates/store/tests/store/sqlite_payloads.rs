//! Large payloads in a SQLite store: deduplicated by content, and loaded only when they are read.

use std::path::PathBuf;
use std::sync::Arc;

use crate::support::{all, messages, name, texts, user};
use capstan_protocol::{EntryId, JsonObject};
use capstan_store::SqliteStore;
use capstan_tape::{Batch, EntryDraft, Fact, JournalStore as _, Store, StoreError, TapeRepository, TapeSlice};
use rusqlite::Connection;
use tempfile::TempDir;

fn temp_database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    (directory, path)
}

/// Number of external payloads, and size of the payload columns of all entries in bytes.
fn payload_stats(path: &PathBuf) -> (i64, i64) {
    let connection = Connection::open(path).unwrap();
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get(0)).unwrap();
    (number("SELECT count(*) FROM payloads"), number("SELECT sum(length(CAST(payload AS BLOB))) FROM entries"))
}

fn replicated_batch(tape: &str, up_to: u64) -> Batch {
    let mut batch = Batch::new();
    batch.push(Fact::MarkReplicated { tape: name(tape), up_to: EntryId(up_to) });
    batch
}

#[tokio::test]
async fn p14_large_payload_is_stored_once_for_all_its_entries() {
    let (_directory, path) = temp_database();
    let large = "log line\n".repeat(100_000);
    let store = SqliteStore::open(&path).unwrap();
    store.commit(messages(&name("t"), &[&large, "small", &large])).await.unwrap();
    store.commit(messages(&name("u"), &[&large])).await.unwrap();
    let (payloads, column_bytes) = payload_stats(&path);
    assert_eq!(payloads, 1);
    assert!(column_bytes < 100, "the payload columns have {column_bytes} bytes");
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert!(texts(&all(&store, &name("t")).await) == [large.as_str(), "small", &large]);
    assert!(texts(&all(&store, &name("u")).await) == [large.as_str()]);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn p14_payload_of_16_kib_is_external() {
    let (_directory, path) = temp_database();
    let store = SqliteStore::open(&path).unwrap();
    let overhead = r#"{"role":"user","content":""}"#.len();
    store.commit(messages(&name("t"), &[&"x".repeat(16 * 1024 - overhead - 1)])).await.unwrap();
    assert_eq!(payload_stats(&path).0, 0);
    store.commit(messages(&name("t"), &[&"x".repeat(16 * 1024 - overhead)])).await.unwrap();
    assert_eq!(payload_stats(&path).0, 1);
}

#[tokio::test]
async fn p14_payload_is_deleted_with_its_last_entry() {
    let (_directory, path) = temp_database();
    let large = "x".repeat(50_000);
    let store = SqliteStore::open(&path).unwrap();
    store.commit(messages(&name("t"), &[&large, &"y".repeat(50_000)])).await.unwrap();
    store.commit(messages(&name("u"), &[&large])).await.unwrap();
    assert_eq!(payload_stats(&path).0, 2);
    store.commit(replicated_batch("t", 2)).await.unwrap();
    assert_eq!(payload_stats(&path).0, 1);
    assert!(texts(&all(&store, &name("u")).await) == [large.as_str()]);
    store.commit(replicated_batch("u", 1)).await.unwrap();
    assert_eq!(
        Connection::open(&path).unwrap().query_row("SELECT count(*) FROM payloads", [], |row| row.get(0)),
        Ok(0)
    );
}

#[tokio::test]
async fn p14_window_loads_no_payload_before_its_anchor() {
    let (_directory, path) = temp_database();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).unwrap());
    let tape = name("t");
    let mut batch = messages(&tape, &[&"x".repeat(1_000_000)]);
    batch.append(&tape, EntryDraft::anchor("a", &JsonObject::new()));
    batch.append(&tape, user("after"));
    store.commit(batch).await.unwrap();
    // Loading the payload fails from now on.
    Connection::open(&path).unwrap().execute("DELETE FROM payloads", []).unwrap();
    let tapes = TapeRepository::new(Arc::clone(&store));
    let window = tapes.window(&tape).await.unwrap();
    assert_eq!(texts(&window.following), ["after"]);
    let error = tapes.read(&tape, &TapeSlice::all()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { detail, .. } if detail.contains("is missing")), "{error}");
}

#[tokio::test]
async fn p14_verify_names_the_entries_of_missing_and_damaged_payloads() {
    let (_directory, path) = temp_database();
    let store = SqliteStore::open(&path).unwrap();
    let (missing, damaged) = ("x".repeat(50_000), "y".repeat(50_000));
    store.commit(messages(&name("t"), &["one", &missing, &damaged])).await.unwrap();
    store.commit(messages(&name("u"), &[&damaged])).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch(
            "DELETE FROM payloads WHERE json LIKE '%xxx%'; \
             UPDATE payloads SET json = replace(json, 'yyyy', 'zzzz');",
        )
        .unwrap();
    let found = store.verify().await.unwrap();
    let found: Vec<String> = found
        .into_iter()
        .map(|problem| {
            format!("{}: {}", problem.tape.map(|tape| tape.to_string()).unwrap_or_default(), problem.message)
        })
        .collect();
    let [missing, in_t, in_u] = found.as_slice() else { panic!("{found:#?}") };
    assert!(missing.starts_with("t: entry 2 cannot be read") && missing.ends_with("is missing"), "{missing}");
    assert!(in_t.starts_with("t: the payload of entry 3 is damaged"), "{in_t}");
    assert!(in_u.starts_with("u: the payload of entry 1 is damaged"), "{in_u}");
}
