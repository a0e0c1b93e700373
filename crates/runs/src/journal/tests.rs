use std::sync::Arc;

use capstan_protocol::{Clock, EntryId, RunId, TapeName};
use capstan_tape::{
    Batch, EntryDraft, Fact, FactOutput, Fence, JournalStore as _, MemoryStore, NewTape, TapeRepository, TapeSlice,
};
use futures::FutureExt as _;
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::Journal;

/// A journal whose turn has its lease.
async fn leased_journal() -> (Arc<MemoryStore>, TapeName, Arc<Journal>) {
    let store = Arc::new(MemoryStore::new());
    let tape = TapeName::parse("t").unwrap();
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::with_name(tape.clone())));
    let now = Clock::system().now();
    batch.push(Fact::TakeLease {
        tape: tape.clone(),
        owner: "host/turn".to_owned(),
        now,
        expires_at: now.plus_millis(60_000),
        owner_liveness: None,
    });
    let committed = store.commit(batch).await.unwrap();
    let Some(FactOutput::Lease(Some(epoch))) = committed.outputs.last() else { panic!("the lease is free") };
    let fence = Fence { tape: tape.clone(), epoch: *epoch };
    let tapes = TapeRepository::new(store.clone());
    let journal = Arc::new(Journal::new(tapes, tape.clone(), fence, Clock::system(), TaskTracker::new()));
    (store, tape, journal)
}

#[tokio::test]
async fn x01_a_commit_that_was_left_to_end_by_itself_does_not_take_the_end_of_the_turn_along() {
    let (store, tape, journal) = leased_journal().await;
    let run = RunId::generate();

    journal.append(&run, EntryDraft::event("first", json!({})));
    // A run that is cancelled while it commits: the commit has begun, and nobody waits for it.
    let another_commits = journal.commit_lock.lock().await;
    assert!(Box::pin(journal.flush()).now_or_never().is_none());
    drop(another_commits);
    let last = journal.final_entry(&run, EntryDraft::event("last", json!({})));
    let assigned = journal.flush_with(vec![last]).await.unwrap();
    assert_eq!(assigned, [FactOutput::Entry(EntryId(2))]);
    assert_eq!(store.read(&tape, &TapeSlice::all()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn x01_a_commit_that_was_left_to_end_by_itself_is_waited_for_when_the_host_ends() {
    let (store, tape, journal) = leased_journal().await;
    journal.append(&RunId::generate(), EntryDraft::event("first", json!({})));
    let another_commits = journal.commit_lock.lock().await;
    assert!(Box::pin(journal.flush()).now_or_never().is_none());
    drop(another_commits);
    journal.tasks.close();
    journal.tasks.wait().await;
    assert_eq!(store.read(&tape, &TapeSlice::all()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn x02_what_was_only_written_is_on_disk_when_something_is_done_on_the_strength_of_it() {
    let (_, _, journal) = leased_journal().await;
    journal.append(&RunId::generate(), EntryDraft::event("model.call", json!({})));
    journal.flush_ordered().await.unwrap();
    assert!(journal.lock().is_unsynced);
    // Nothing waits to be written, and yet it is not on disk.
    journal.flush().await.unwrap();
    assert!(!journal.lock().is_unsynced);
}

#[tokio::test]
async fn x02_what_a_tool_did_is_unrecorded_until_the_disk_has_it() {
    let (_, _, journal) = leased_journal().await;
    let did = |tool: &str| {
        let entry = EntryDraft::event("done", json!({}));
        journal.append_atomic(&RunId::generate(), Vec::new(), vec![entry], Some(tool.to_owned()));
    };
    did("bash");
    journal.flush_ordered().await.unwrap();
    did("fs.write");
    assert_eq!(journal.unrecorded_tools(), ["bash", "fs.write"]);
    journal.flush().await.unwrap();
    assert!(journal.unrecorded_tools().is_empty());
}
