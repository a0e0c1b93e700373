//! A process that was paused for longer than its lease.

use std::process::Command;
use std::time::{Duration, Instant};

use capstan_protocol::Timestamp;
use capstan_store::SqliteStore;
use capstan_tape::{Batch, Epoch, Fact, Fence, Store as _, StoreError};

use crate::process::{self, Other};
use crate::support::{all, messages, name, texts};

/// No assertion: it only ends a test that would hang.
const TOO_LONG: Duration = Duration::from_mins(1);

/// The wish of somebody who judges owners by time alone, as those on other machines must.
fn take(owner: &str, now: i64) -> Batch {
    let (now, until) = (Timestamp::from_millis(now), Timestamp::from_millis(now + 1000));
    let mut batch = Batch::new();
    batch.push(Fact::TakeLease { tape: name("t"), owner: owner.into(), now, until, judged: None });
    batch
}

fn fenced(epoch: u64, texts: &[&str]) -> Batch {
    Batch { fence: Some(Fence { tape: name("t"), epoch: Epoch(epoch) }), ..messages(&name("t"), texts) }
}

#[tokio::test]
#[ignore = "the process that is paused"]
async fn owner() {
    let store = SqliteStore::open(process::database()).unwrap();
    store.commit(take("paused", 0)).await.unwrap();
    process::say("taken");
    while let Some(word) = process::hear() {
        let mut batch = fenced(1, &[&word, "and the rest of it"]);
        batch.push(Fact::PutState { tape: name("t"), key: "last".into(), value: word.into() });
        match store.commit(batch).await {
            Ok(_) => process::say("written"),
            Err(error) => process::say(&error.to_string()),
        }
    }
}

fn signal(other: &Other, name: &str) {
    let sent = Command::new("kill").args([name, &other.child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Stops a process, and waits until it has.
fn pause(other: &Other) {
    signal(other, "-STOP");
    let deadline = Instant::now() + TOO_LONG;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", other.child.id())).unwrap();
        if status.lines().any(|line| line.starts_with("State:\tT")) {
            return;
        }
        assert!(Instant::now() < deadline, "it goes on: {status}");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn x04_a_process_that_was_paused_past_its_lease_writes_nothing_when_it_wakes() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("capstan.db");
    let tape = name("t");
    let mut paused = Other::start("fence::owner", &database);
    assert_eq!(paused.hear(), "taken");
    paused.tell("in time");
    assert_eq!(paused.hear(), "written");

    pause(&paused);
    paused.tell("too late");
    let store = SqliteStore::open(&database).unwrap();
    store.commit(take("awake", 2000)).await.unwrap();
    assert_eq!(store.lease(&tape).await.unwrap().unwrap().owner.as_deref(), Some("awake"));
    store.commit(fenced(2, &["by another"])).await.unwrap();
    signal(&paused, "-CONT");

    assert_eq!(paused.hear(), StoreError::Fenced { tape: tape.clone() }.to_string());
    assert_eq!(texts(&all(&store, &tape).await), ["in time", "and the rest of it", "by another"]);
    assert_eq!(store.state(&tape).await.unwrap()["last"], "in time", "nothing of its batch is there");
    paused.tell("once more");
    assert_eq!(paused.hear(), StoreError::Fenced { tape }.to_string(), "nor does it help to try again");
    assert_eq!(store.verify().await.unwrap(), []);
}
