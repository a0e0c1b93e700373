//! Database locked by another process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_store::{SqliteOptions, SqliteStore};
use capstan_tape::{JournalStore as _, StoreError};
use rusqlite::Connection;
use tokio::task::JoinSet;

use super::process::{self, FaultProcess};
use crate::support::{all, ids, messages, name};

#[test]
#[ignore = "child process that locks the database"]
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
async fn x02_commit_waits_for_another_process_that_writes() {
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
    assert_eq!(ids(&all(&*store, &tape).await), [1], "reads do not wait");
    other.send_command("unlock");
    commit.await.unwrap().expect("the commit waited for the lock");
    assert_eq!(ids(&all(&*store, &tape).await), [1, 2]);
}

#[tokio::test]
async fn x02_commit_fails_after_the_busy_timeout_and_works_when_the_lock_is_gone() {
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
    assert_eq!(commit_all().await, vec![Err(busy); 3], "every commit fails");
    assert_eq!(ids(&all(&*store, &tape).await), [1]);
    SqliteStore::open(&database).expect("opening needs no lock");

    // Killing the process in the middle of its transaction releases the lock.
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    assert_eq!(commit_all().await, vec![Ok(()); 3]);
    assert_eq!(ids(&all(&*store, &tape).await), [1, 2, 3, 4], "its transaction is rolled back");
    assert_eq!(store.verify().await.unwrap(), []);
}
