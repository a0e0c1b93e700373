//! Concurrent writers on one database.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::support::{all, ids, messages, name};
use capstan_protocol::{EntryId, Timestamp};
use capstan_store::SqliteStore;
use capstan_tape::{
    Batch, BatchPrecondition, Fact, FactOutput, Fence, JournalStore as _, LeaseEpoch, OutboxId, OutboxStatus,
    StoreError, TapeSlice,
};
use rusqlite::Connection;

fn fenced_batch(batch: Batch) -> Batch {
    Batch { fence: Some(Fence { tape: name("unleased"), epoch: LeaseEpoch(1) }), ..batch }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_rejected_batch_does_not_affect_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(directory.path().join("capstan.db")).unwrap());
    let tape = name("t");
    let commit = |number: usize| {
        let (store, tape) = (Arc::clone(&store), tape.clone());
        tokio::spawn(async move {
            let batch = messages(&tape, &[&format!("{number}a"), &format!("{number}b")]);
            let batch = if number % 10 == 3 { fenced_batch(batch) } else { batch };
            store.commit(batch).await
        })
    };
    let commits: Vec<_> = (0..500).map(commit).collect();
    let mut assigned = Vec::new();
    for (number, commit) in commits.into_iter().enumerate() {
        match commit.await.unwrap() {
            Err(error) => {
                assert_eq!(number % 10, 3);
                assert_eq!(error, StoreError::Fenced { tape: name("unleased") });
            }
            Ok(committed) => {
                assert_ne!(number % 10, 3);
                let first = committed.entry_id(capstan_tape::EntryRef::InBatch(1)).unwrap();
                assert_eq!(
                    committed.entry_id(capstan_tape::EntryRef::InBatch(2)),
                    Some(first.next()),
                    "the entries of a batch are adjacent"
                );
                assigned.extend([first.0, first.next().0]);
            }
        }
    }
    assigned.sort_unstable();
    assert_eq!(assigned, (1..=900).collect::<Vec<u64>>(), "rejected batches use no ids");
    assert_eq!(ids(&all(&*store, &tape).await), assigned);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_batch_rejected_after_its_first_write_does_not_affect_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(directory.path().join("capstan.db")).unwrap());
    let tape = name("t");
    let commit = |number: usize| {
        let (store, tape) = (Arc::clone(&store), tape.clone());
        tokio::spawn(async move {
            let mut batch = messages(&tape, &[&format!("{number}a"), &format!("{number}b")]);
            if number % 10 == 3 {
                batch.push(Fact::RecordDelivery { id: OutboxId(7), status: OutboxStatus::sent() });
            }
            store.commit(batch).await
        })
    };
    let commits: Vec<_> = (0..500).map(commit).collect();
    for (number, commit) in commits.into_iter().enumerate() {
        assert_eq!(commit.await.unwrap().is_err(), number % 10 == 3, "{number}");
    }
    assert_eq!(ids(&all(&*store, &tape).await), (1..=900).collect::<Vec<u64>>(), "rejected batches use no ids");
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn x04_commits_of_another_store_are_visible_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    let [first, second] = [0, 1].map(|_| SqliteStore::open(&path).unwrap());
    let tape = name("t");
    let lease = |owner: &str| {
        let (now, expires_at) = (Timestamp::from_millis(0), Timestamp::from_millis(100));
        let owner = owner.to_owned();
        let facts = vec![Fact::TakeLease { tape: name("t"), owner, now, expires_at, owner_liveness: None }];
        Batch { facts, ..Batch::new() }
    };
    let release = Fact::ReleaseLease { tape: tape.clone(), owner: "first".to_owned() };
    let fenced = |epoch| Batch {
        fence: Some(Fence { tape: name("t"), epoch: LeaseEpoch(epoch) }),
        ..messages(&name("t"), &["x"])
    };
    assert_eq!(first.commit(lease("first")).await.unwrap().outputs, [FactOutput::Lease(Some(LeaseEpoch(1)))]);
    first.commit(fenced(1)).await.unwrap();
    first.commit(Batch { facts: vec![release], ..Batch::new() }).await.unwrap();
    assert_eq!(second.commit(lease("second")).await.unwrap().outputs, [FactOutput::Lease(Some(LeaseEpoch(2)))]);
    second.commit(fenced(2)).await.unwrap();
    let denied = first.commit(lease("first")).await.unwrap();
    assert_eq!(denied.outputs, [FactOutput::Lease(None)], "the lease has another owner");
    assert_eq!(first.commit(fenced(1)).await, Err(StoreError::Fenced { tape: tape.clone() }));
    first.commit(messages(&tape, &["y"])).await.unwrap();
    assert_eq!(ids(&all(&first, &tape).await), [1, 2, 3]);
}

#[tokio::test]
async fn x01_acknowledged_commits_survive_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    let tape = name("t");
    let store = SqliteStore::open(&path).unwrap();
    {
        let batches: Vec<_> = (0..50).map(|_| store.commit(messages(&tape, &["x"]))).collect();
        for batch in batches {
            batch.await.unwrap();
        }
    }
    drop(store);
    let count: i64 =
        Connection::open(&path).unwrap().query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x04_two_stores_on_one_file_take_turns() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    let stores = [0, 1].map(|_| Arc::new(SqliteStore::open(&path).unwrap()));
    let tape = name("t");
    let writers: Vec<_> = (0..100)
        .map(|number| {
            let (store, tape) = (Arc::clone(&stores[number % 2]), tape.clone());
            tokio::spawn(async move { store.commit(messages(&tape, &["x"])).await })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    for store in &stores {
        assert_eq!(ids(&all(&**store, &tape).await), (1..=100).collect::<Vec<u64>>());
    }
    let head = BatchPrecondition::TapeHead { tape: tape.clone(), head: EntryId(99) };
    let stale = Batch { preconditions: vec![head], ..messages(&tape, &["late"]) };
    assert_eq!(stores[0].commit(stale).await, Err(StoreError::HeadMoved { tape }));
}

#[tokio::test]
async fn d11_reads_do_not_wait_for_a_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    let store = SqliteStore::open(&path).unwrap();
    let tape = name("t");
    store.commit(messages(&tape, &["one"])).await.unwrap();
    let other_process = Connection::open(&path).unwrap();
    other_process.execute_batch("BEGIN IMMEDIATE; DELETE FROM entries").unwrap();
    assert_eq!(ids(&all(&store, &tape).await), [1]);
    let second = SqliteStore::open(&path).expect("opening needs no write lock either");
    assert_eq!(ids(&second.read(&tape, &TapeSlice::last()).await.unwrap()), [1]);
    other_process.execute_batch("ROLLBACK").unwrap();
}

const OTHER_PROCESS_DATABASE_ENV: &str = "CAPSTAN_TEST_DATABASE";

fn append_many(path: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = SqliteStore::open(path).unwrap();
    for _ in 0..50 {
        runtime.block_on(store.commit(messages(&name("t"), &["x"]))).unwrap();
    }
}

#[test]
#[ignore = "child process of x04_two_processes_share_a_database"]
fn other_process() {
    append_many(Path::new(&std::env::var(OTHER_PROCESS_DATABASE_ENV).unwrap()));
}

#[test]
fn x04_two_processes_share_a_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capstan.db");
    // The database does not exist, so both processes may try to create it.
    let mut other = Command::new(std::env::current_exe().unwrap());
    other
        .args(["--exact", "sqlite_commit::other_process", "--ignored", "--nocapture"])
        .env(OTHER_PROCESS_DATABASE_ENV, &path);
    let mut other = other.spawn().unwrap();
    append_many(&path);
    assert!(other.wait().unwrap().success());
    let connection = Connection::open(&path).unwrap();
    let found: (i64, i64) = connection
        .query_row("SELECT count(*), max(id) FROM entries", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(found, (100, 100));
}
