//! Process that was paused for longer than its lease.

use std::time::{Duration, Instant};

use capstan_protocol::Timestamp;
use capstan_store::SqliteStore;
use capstan_tape::{
    Batch, Fact, Fence, JournalStore as _, KeyValueStore as _, LeaseEpoch, LeaseStore as _, StoreError,
};

use super::process::{self, FaultProcess};
use crate::support::{all, messages, name, texts};

/// Only ends a test that would hang; not an assertion.
const PAUSE_TIMEOUT: Duration = Duration::from_mins(1);

/// Request without knowledge about the liveness of owners, as from another machine.
fn take_lease_batch(owner: &str, now: i64) -> Batch {
    let (now, expires_at) = (Timestamp::from_millis(now), Timestamp::from_millis(now + 1000));
    let mut batch = Batch::new();
    batch.push(Fact::TakeLease { tape: name("t"), owner: owner.into(), now, expires_at, owner_liveness: None });
    batch
}

fn fenced_batch(epoch: u64, texts: &[&str]) -> Batch {
    Batch { fence: Some(Fence { tape: name("t"), epoch: LeaseEpoch(epoch) }), ..messages(&name("t"), texts) }
}

#[tokio::test]
#[ignore = "child process that is paused"]
async fn owner() {
    let store = SqliteStore::open(process::database_path()).unwrap();
    store.commit(take_lease_batch("paused", 0)).await.unwrap();
    process::report("taken");
    while let Some(text) = process::read_command() {
        let mut batch = fenced_batch(1, &[&text, "second entry"]);
        batch.push(Fact::PutState { tape: name("t"), key: "last".into(), value: text.into() });
        match store.commit(batch).await {
            Ok(_) => process::report("written"),
            Err(error) => process::report(&error.to_string()),
        }
    }
}

fn send_signal(other: &FaultProcess, name: &str) {
    capstan_testing::send_signal(other.child.id(), name);
}

/// Stops a process and waits until it is stopped.
fn stop_process(other: &FaultProcess) {
    send_signal(other, "STOP");
    let deadline = Instant::now() + PAUSE_TIMEOUT;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", other.child.id())).unwrap();
        if status.lines().any(|line| line.starts_with("State:\tT")) {
            return;
        }
        assert!(Instant::now() < deadline, "the process is not stopped: {status}");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn x04_process_paused_past_its_lease_writes_nothing_when_it_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("capstan.db");
    let tape = name("t");
    let mut paused = FaultProcess::start("fence::owner", &database);
    assert_eq!(paused.read_report(), "taken");
    paused.send_command("in time");
    assert_eq!(paused.read_report(), "written");

    stop_process(&paused);
    paused.send_command("too late");
    let store = SqliteStore::open(&database).unwrap();
    store.commit(take_lease_batch("awake", 2000)).await.unwrap();
    assert_eq!(store.lease(&tape).await.unwrap().unwrap().owner.as_deref(), Some("awake"));
    store.commit(fenced_batch(2, &["by another"])).await.unwrap();
    send_signal(&paused, "CONT");

    assert_eq!(paused.read_report(), StoreError::Fenced { tape: tape.clone() }.to_string());
    assert_eq!(texts(&all(&store, &tape).await), ["in time", "second entry", "by another"]);
    assert_eq!(store.state(&tape).await.unwrap()["last"], "in time", "nothing of its batch was written");
    paused.send_command("retry");
    assert_eq!(paused.read_report(), StoreError::Fenced { tape }.to_string(), "a retry fails too");
    assert_eq!(store.verify().await.unwrap(), []);
}
