//! Replication to an external tape store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use capstan_protocol::{EntryId, TapeName};
use capstan_tape::{Entry, Query, Store, StoreError, TapeRepository, TapeSlice, TapeStore};
use serde_json::json;

use super::fixture::{
    anchor, append_batch, commit, commit_to_tapes, create_tape_batch, entry, entry_ids, entry_texts, read_all,
    read_texts, tape_name, user_message,
};

type StorePair = (Arc<dyn Store>, Arc<dyn TapeStore>);

/// Tape store whose appends fail on demand.
struct FailingTapeStore {
    inner: Arc<dyn TapeStore>,
    should_fail: AtomicBool,
}

#[async_trait]
impl TapeStore for FailingTapeStore {
    async fn append(&self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError> {
        if self.should_fail.load(Ordering::Relaxed) {
            // The worst case: some entries were stored before the failure.
            self.inner.append(tape, entries.get(..1).unwrap_or_default()).await?;
            return Err(StoreError::io("append", "no space left on device"));
        }
        self.inner.append(tape, entries).await
    }

    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        self.inner.read(tape, slice).await
    }

    async fn tapes(&self) -> Result<Vec<TapeName>, StoreError> {
        self.inner.tapes().await
    }
}

async fn stored_ids(store: &dyn TapeStore, tape: &TapeName) -> Vec<u64> {
    entry_ids(&store.read(tape, &TapeSlice::all()).await.unwrap())
}

pub(super) async fn d09_entries_move_to_the_tape_store((store, files): StorePair) {
    let tape = tape_name("t");
    let tapes = TapeRepository::with_external_store(Arc::clone(&store), Arc::clone(&files));
    commit_to_tapes(&tapes, create_tape_batch(&tape, [anchor("a"), user_message("one")])).await;
    commit_to_tapes(&tapes, append_batch(&tape, [user_message("two")])).await;
    assert_eq!(stored_ids(&*files, &tape).await, [1, 2, 3]);
    assert!(read_all(&*store, &tape).await.is_empty(), "the store has removed them");
    assert_eq!(read_texts(&tapes, &tape).await, ["a", "one", "two"]);
    let record = tapes.record(&tape).await.unwrap().unwrap();
    assert_eq!((record.head, record.replicated_up_to), (EntryId(3), EntryId(3)));
    assert_eq!(tapes.list().await.unwrap(), [record]);
}

pub(super) async fn d09_no_entry_is_lost_while_the_tape_store_fails((store, files): StorePair) {
    let tape = tape_name("t");
    let failing = Arc::new(FailingTapeStore { inner: Arc::clone(&files), should_fail: AtomicBool::new(false) });
    let tapes = TapeRepository::with_external_store(Arc::clone(&store), Arc::clone(&failing) as Arc<dyn TapeStore>);
    commit_to_tapes(&tapes, create_tape_batch(&tape, [anchor("a"), user_message("one")])).await;
    failing.should_fail.store(true, Ordering::Relaxed);
    commit_to_tapes(&tapes, append_batch(&tape, [user_message("two"), user_message("three")])).await;
    commit_to_tapes(&tapes, append_batch(&tape, [anchor("b"), user_message("four")])).await;
    assert_eq!(stored_ids(&*files, &tape).await, [1, 2, 3]);
    assert_eq!(
        read_texts(&tapes, &tape).await,
        ["a", "one", "two", "three", "b", "four"],
        "reads see the entries of both stores once"
    );
    assert_eq!(entry_texts(&tapes.window(&tape).await.unwrap().following), ["four"]);
    let newest = TapeSlice { limit: Some(3), ..TapeSlice::last() };
    assert_eq!(entry_ids(&tapes.read(&tape, &newest).await.unwrap()), [6, 5, 4]);
    let oldest = TapeSlice { limit: Some(2), ..TapeSlice::after(EntryId(2)) };
    assert_eq!(entry_ids(&tapes.read(&tape, &oldest).await.unwrap()), [3, 4]);

    failing.should_fail.store(false, Ordering::Relaxed);
    commit_to_tapes(&tapes, append_batch(&tape, [user_message("five")])).await;
    assert_eq!(stored_ids(&*files, &tape).await, [1, 2, 3, 4, 5, 6, 7]);
    assert!(read_all(&*store, &tape).await.is_empty());
    assert_eq!(read_texts(&tapes, &tape).await, ["a", "one", "two", "three", "b", "four", "five"]);
}

pub(super) async fn d09_pending_entries_are_replicated_without_another_commit((store, files): StorePair) {
    let (tape, earlier) = (tape_name("t"), tape_name("earlier"));
    commit(&*store, create_tape_batch(&earlier, [user_message("before the tape store")])).await;
    let failing = Arc::new(FailingTapeStore { inner: Arc::clone(&files), should_fail: AtomicBool::new(false) });
    let tapes = TapeRepository::with_external_store(Arc::clone(&store), Arc::clone(&failing) as Arc<dyn TapeStore>);
    commit_to_tapes(&tapes, create_tape_batch(&tape, [user_message("one")])).await;
    failing.should_fail.store(true, Ordering::Relaxed);
    commit_to_tapes(&tapes, append_batch(&tape, [user_message("two")])).await;
    assert_eq!(store.tapes_with_entries(None, 10).await.unwrap(), [earlier.clone(), tape.clone()]);
    assert_eq!(store.tapes_with_entries(Some(&earlier), 10).await.unwrap(), std::slice::from_ref(&tape));
    assert_eq!(store.tapes_with_entries(None, 1).await.unwrap(), std::slice::from_ref(&earlier));
    assert_eq!(tapes.replicate_pending(|| true).await.unwrap(), 0, "the tape store still fails");
    failing.should_fail.store(false, Ordering::Relaxed);
    assert_eq!(tapes.replicate_pending(|| false).await.unwrap(), 0, "the host stops");
    assert_eq!(tapes.replicate_pending(|| true).await.unwrap(), 1);
    assert_eq!(store.tapes_with_entries(None, 10).await.unwrap(), [earlier], "it moves with its next commit");
    assert_eq!(read_texts(&tapes, &tape).await, ["one", "two"]);
    assert_eq!(tapes.verify().await.unwrap(), []);
}

pub(super) async fn d09_tape_from_the_tape_store_can_be_continued((store, files): StorePair) {
    let tape = tape_name("t");
    let old = [
        entry(4, "anchor", json!({"name": "old", "state": {}})),
        entry(7, "message", json!({"role": "user", "content": "before"})),
    ];
    files.append(&tape, &old).await.unwrap();
    let tapes = TapeRepository::with_external_store(Arc::clone(&store), Arc::clone(&files));
    assert_eq!(tapes.record(&tape).await.unwrap().unwrap().head, EntryId(7));
    assert_eq!(read_texts(&tapes, &tape).await, ["old", "before"]);
    commit_to_tapes(&tapes, create_tape_batch(&tape, [user_message("after")])).await;
    assert_eq!(stored_ids(&*files, &tape).await, [4, 7, 8]);
    tapes.fork(&tape, &tape_name("f"), Some(EntryId(7))).await.unwrap();
    assert_eq!(read_texts(&tapes, &tape_name("f")).await, ["old", "before"]);
}

pub(super) async fn d09_existing_tape_moves_completely((store, files): StorePair) {
    let tape = tape_name("t");
    commit(&*store, create_tape_batch(&tape, [user_message("one"), user_message("two")])).await;
    let tapes = TapeRepository::with_external_store(Arc::clone(&store), Arc::clone(&files));
    assert_eq!(read_texts(&tapes, &tape).await, ["one", "two"]);
    commit_to_tapes(&tapes, append_batch(&tape, [user_message("three")])).await;
    assert_eq!(stored_ids(&*files, &tape).await, [1, 2, 3]);
    assert_eq!(read_texts(&tapes, &tape).await, ["one", "two", "three"]);
}

pub(super) async fn d09_external_tape_cannot_be_written_without_its_store((store, files): StorePair) {
    let tape = tape_name("t");
    files.append(&tape_name("adopted"), &[entry(3, "event", json!({}))]).await.unwrap();
    let tapes = TapeRepository::with_external_store(Arc::clone(&store), Arc::clone(&files));
    commit_to_tapes(&tapes, create_tape_batch(&tape, [user_message("one")])).await;
    tapes.fork(&tape_name("adopted"), &tape_name("f"), None).await.unwrap();
    let alone = TapeRepository::new(Arc::clone(&store));
    for tape in [tape, tape_name("adopted")] {
        let elsewhere = StoreError::StoredElsewhere { tape: tape.clone() };
        assert_eq!(alone.commit(append_batch(&tape, [user_message("two")])).await, Err(elsewhere.clone()));
        assert_eq!(alone.reset(&tape, false).await, Err(elsewhere));
    }
    commit_to_tapes(&alone, create_tape_batch(&tape_name("new"), [user_message("one")])).await;
}

pub(super) async fn d09_external_tape_cannot_be_read_without_its_store((store, files): StorePair) {
    let tape = tape_name("t");
    let tapes = TapeRepository::with_external_store(Arc::clone(&store), Arc::clone(&files));
    commit_to_tapes(&tapes, create_tape_batch(&tape, [anchor("a"), user_message("one")])).await;
    tapes.reset(&tape, false).await.unwrap();
    // While the tape store fails, entries stay in the store itself.
    commit(&*store, append_batch(&tape, [user_message("pending")])).await;

    let alone = TapeRepository::new(Arc::clone(&store));
    let elsewhere = StoreError::StoredElsewhere { tape: tape.clone() };
    assert_eq!(alone.read(&tape, &TapeSlice::all()).await, Err(elsewhere.clone()));
    assert_eq!(alone.read(&tape, &TapeSlice::last()).await, Err(elsewhere.clone()), "for a single entry too");
    assert_eq!(alone.read_generation(&tape, 1, &TapeSlice::all()).await, Err(elsewhere.clone()));
    assert_eq!(alone.window(&tape).await, Err(elsewhere.clone()));
    assert_eq!(alone.query(&tape, &Query::default()).await, Err(elsewhere.clone()));
    assert_eq!(alone.last_anchor(&tape).await, Err(elsewhere.clone()));

    assert_eq!(alone.read(&tape, &TapeSlice::after(EntryId(3))).await, Err(elsewhere));
    let pending = alone.read(&tape, &TapeSlice::after(EntryId(4))).await.unwrap();
    assert_eq!(entry_texts(&pending), ["pending"], "entries that were not replicated can be read");
    let record = alone.record(&tape).await.unwrap().unwrap();
    assert_eq!((record.head, record.replicated_up_to), (EntryId(5), EntryId(4)));
    assert_eq!(alone.list().await.unwrap(), [record]);
    assert_eq!(store.verify().await.unwrap(), [], "the store has no integrity problem");
}

pub(super) async fn d09_fork_of_an_external_tape_needs_its_store((store, files): StorePair) {
    let (tape, fork) = (tape_name("t"), tape_name("f"));
    let tapes = TapeRepository::with_external_store(Arc::clone(&store), Arc::clone(&files));
    commit_to_tapes(&tapes, create_tape_batch(&tape, [user_message("one"), user_message("two")])).await;
    tapes.fork(&tape, &fork, Some(EntryId(1))).await.unwrap();

    let alone = TapeRepository::new(Arc::clone(&store));
    commit_to_tapes(&alone, append_batch(&fork, [anchor("a"), user_message("on the fork")])).await;
    let elsewhere = StoreError::StoredElsewhere { tape };
    assert_eq!(alone.read(&fork, &TapeSlice::all()).await, Err(elsewhere.clone()));
    assert_eq!(alone.last_anchor(&fork).await, Err(elsewhere));
    let own = alone.read(&fork, &TapeSlice::after(EntryId(1))).await.unwrap();
    assert_eq!(entry_texts(&own), ["a", "on the fork"], "no entry of the parent is needed");
}

pub(super) async fn d09_external_fork_cannot_be_merged_without_its_store((store, files): StorePair) {
    let (tape, fork) = (tape_name("t"), tape_name("f"));
    let alone = TapeRepository::new(Arc::clone(&store));
    commit_to_tapes(&alone, create_tape_batch(&tape, [user_message("one")])).await;
    alone.fork(&tape, &fork, None).await.unwrap();
    let tapes = TapeRepository::with_external_store(Arc::clone(&store), Arc::clone(&files));
    commit_to_tapes(&tapes, append_batch(&fork, [user_message("two")])).await;

    assert_eq!(alone.merge(&fork).await, Err(StoreError::StoredElsewhere { tape: fork.clone() }));
    tapes.merge(&fork).await.unwrap();
    assert!(read_texts(&tapes, &tape).await.contains(&"two".to_owned()));
}
