use std::sync::Arc;
use std::time::Duration;

use capstan_protocol::{EntryId, RunId, TapeName};
use capstan_tape::{Assigned, Batch, Draft, Fact, MemoryStore, NewTape, Slice, Store as _, Tapes};
use futures::FutureExt as _;
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::Journal;
use crate::Clock;
use crate::sessions::lease::Owner;

/// A journal whose turn has its lease.
async fn begun() -> (Arc<MemoryStore>, TapeName, Arc<Journal>) {
    let store = Arc::new(MemoryStore::new());
    let tape = TapeName::parse("t").unwrap();
    let claim = Owner::anonymous().claim(&tape);
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::named(tape.clone())));
    batch.push(claim.take(None, Clock::system().now(), Duration::from_mins(1)));
    let committed = store.commit(batch).await.unwrap();
    let fence = claim.fence(committed.assigned.last()).unwrap();
    let tapes = Tapes::new(store.clone());
    let journal = Arc::new(Journal::new(tapes, tape.clone(), fence, Clock::system(), TaskTracker::new()));
    (store, tape, journal)
}

#[tokio::test]
async fn x01_a_commit_that_was_left_to_end_by_itself_does_not_take_the_end_of_the_turn_along() {
    let (store, tape, journal) = begun().await;
    let run = RunId::generate();

    journal.append(&run, Draft::event("first", json!({})));
    // A run that is cancelled while it commits: the commit has begun, and nobody waits for it.
    let another_commits = journal.order.lock().await;
    assert!(Box::pin(journal.flush()).now_or_never().is_none());
    drop(another_commits);
    let last = journal.last_entry(&run, Draft::event("last", json!({})));
    let assigned = journal.flush_with(vec![last]).await.unwrap();
    assert_eq!(assigned, [Assigned::Entry(EntryId(2))]);
    assert_eq!(store.read(&tape, &Slice::all()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn x01_a_commit_that_was_left_to_end_by_itself_is_waited_for_when_the_host_ends() {
    let (store, tape, journal) = begun().await;
    journal.append(&RunId::generate(), Draft::event("first", json!({})));
    let another_commits = journal.order.lock().await;
    assert!(Box::pin(journal.flush()).now_or_never().is_none());
    drop(another_commits);
    journal.tasks.close();
    journal.tasks.wait().await;
    assert_eq!(store.read(&tape, &Slice::all()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn x02_what_was_only_written_is_on_disk_when_something_is_done_on_the_strength_of_it() {
    let (_, _, journal) = begun().await;
    journal.append(&RunId::generate(), Draft::event("model.call", json!({})));
    journal.flush_in_order().await.unwrap();
    assert!(journal.lock().is_unsynced);
    // Nothing waits to be written, and yet it is not on disk.
    journal.flush().await.unwrap();
    assert!(!journal.lock().is_unsynced);
}

#[tokio::test]
async fn x02_what_a_tool_did_is_unrecorded_until_the_disk_has_it() {
    let (_, _, journal) = begun().await;
    let did = |tool: &str| {
        let entry = Draft::event("done", json!({}));
        journal.append_together(&RunId::generate(), Vec::new(), vec![entry], Some(tool.to_owned()));
    };
    did("bash");
    journal.flush_in_order().await.unwrap();
    did("fs.write");
    assert_eq!(journal.unrecorded(), ["bash", "fs.write"]);
    journal.flush().await.unwrap();
    assert!(journal.unrecorded().is_empty());
}
