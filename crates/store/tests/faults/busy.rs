//! Another process keeps the database locked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_store::{SqliteOptions, SqliteStore};
use capstan_tape::{JournalStore as _, StoreError};
use rusqlite::Connection;
use tokio::task::JoinSet;

use crate::process::{self, FaultProcess};
use crate::support::{all, ids, messages, name};

#[test]
#[ignore = "the process that keeps the database locked"]
fn locker() {
    let connection = Connection::open(process::database_path()).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE; DELETE FROM entries").unwrap();
    process::report("locked");
    process::read_command();
    connection.execute_batch("ROLLBACK").unwrap();
}

fn start_locker(database: &Path) -> FaultProcess {
    let mut other = FaultProcess::start("busy::locker", database);
    assert_eq!(other.read_report(), "locked");
    other
}

fn open_store(database: &Path, busy_timeout: Duration) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open_with(database, SqliteOptions { busy_timeout, ..SqliteOptions::default() }).unwrap())
}

#[tokio::test]
async fn x02_a_commit_waits_for_another_process_that_writes() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("capstan.db");
    let store = open_store(&database, Duration::from_mins(2));
    let tape = name("t");
    store.commit(messages(&tape, &["before"])).await.unwrap();
    let mut other = start_locker(&database);
    let commit = tokio::spawn({
        let (store, tape) = (Arc::clone(&store), tape.clone());
        async move { store.commit(messages(&tape, &["after"])).await }
    });
    assert_eq!(ids(&all(&*store, &tape).await), [1], "who reads does not wait");
    other.send_command("go on");
    commit.await.unwrap().expect("it waited");
    assert_eq!(ids(&all(&*store, &tape).await), [1, 2]);
}

#[tokio::test]
async fn x02_a_commit_that_waited_too_long_is_refused_whole_and_works_when_the_other_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("capstan.db");
    let store = open_store(&database, Duration::from_millis(20));
    let tape = name("t");
    store.commit(messages(&tape, &["before"])).await.unwrap();
    let mut other = start_locker(&database);
    let commit_all = async || {
        let mut commits = JoinSet::new();
        for text in ["one", "two", "three"] {
            let (store, tape) = (Arc::clone(&store), tape.clone());
            commits.spawn(async move { store.commit(messages(&tape, &[text])).await.map(drop) });
        }
        commits.join_all().await
    };
    let busy = StoreError::Busy { what: database.display().to_string() };
    assert!(busy.to_string().ends_with("capstan.db cannot be written: another process keeps it locked"));
    assert_eq!(commit_all().await, vec![Err(busy); 3], "everybody is told");
    assert_eq!(ids(&all(&*store, &tape).await), [1]);
    SqliteStore::open(&database).expect("to open it takes no lock");

    // Killed in the middle of its transaction: the lock goes with it.
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    assert_eq!(commit_all().await, vec![Ok(()); 3]);
    assert_eq!(ids(&all(&*store, &tape).await), [1, 2, 3, 4], "and nothing of what it did is there");
    assert_eq!(store.verify().await.unwrap(), []);
}
