use std::sync::Arc;

use capstan_protocol::{Clock, EntryId, RunId, TapeName};
use capstan_tape::{
    Batch, CommitDurability, EntryDraft, Fact, FactOutput, Fence, JournalStore as _, MemoryStore, NewTape,
    TapeRepository, TapeSlice,
};
use futures::FutureExt as _;
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::Journal;

/// Journal whose turn holds the lease.
async fn leased_journal() -> (Arc<MemoryStore>, TapeName, Arc<Journal>) {
    let store = Arc::new(MemoryStore::new());
    let tape = TapeName::parse("t").unwrap();
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
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
async fn x01_a_detached_commit_does_not_include_the_end_of_the_turn() {
    let (store, tape, journal) = leased_journal().await;
    let run = RunId::generate();

    journal.append(&run, EntryDraft::event("first", json!({})));
    // A run that is cancelled while it commits: the commit has begun, and its caller is dropped.
    let other_commit = journal.cached_window.lock().await;
    assert!(Box::pin(journal.flush()).now_or_never().is_none());
    drop(other_commit);
    let last = journal.stamped_entry_fact(&run, EntryDraft::event("last", json!({})));
    let outputs = journal.flush_with(CommitDurability::Durable, Vec::new(), vec![last]).await.unwrap();
    assert_eq!(outputs, [FactOutput::Entry(EntryId(2))]);
    assert_eq!(store.read(&tape, &TapeSlice::all()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn x01_a_detached_commit_completes_before_the_host_ends() {
    let (store, tape, journal) = leased_journal().await;
    journal.append(&RunId::generate(), EntryDraft::event("first", json!({})));
    let other_commit = journal.cached_window.lock().await;
    assert!(Box::pin(journal.flush()).now_or_never().is_none());
    drop(other_commit);
    journal.tasks.close();
    journal.tasks.wait().await;
    assert_eq!(store.read(&tape, &TapeSlice::all()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn x02_a_durable_flush_syncs_what_an_ordered_flush_has_written() {
    let (_, _, journal) = leased_journal().await;
    journal.append(&RunId::generate(), EntryDraft::event("model.call", json!({})));
    journal.flush_ordered().await.unwrap();
    assert!(journal.lock().is_unsynced);
    // Nothing is pending, but the last commit is not durable yet.
    journal.flush().await.unwrap();
    assert!(!journal.lock().is_unsynced);
}

#[tokio::test]
async fn x02_a_tool_effect_is_unrecorded_until_it_is_durable() {
    let (_, _, journal) = leased_journal().await;
    let record_effect = |tool: &str| {
        let entry = EntryDraft::event("done", json!({}));
        journal.append_atomic(&RunId::generate(), Vec::new(), vec![entry], Some(tool.to_owned()));
    };
    record_effect("bash");
    journal.flush_ordered().await.unwrap();
    record_effect("fs.write");
    assert_eq!(journal.tools_with_undurable_effects(), ["bash", "fs.write"]);
    journal.flush().await.unwrap();
    assert!(journal.tools_with_undurable_effects().is_empty());
}
