//! A host and a tape store that is not its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use capstan_protocol::{EntryId, TapeName};
use capstan_tape::{Entry, Query, Slice, Store, StoreError, TapeStore, Tapes};
use serde_json::json;

use super::fixture::{all, anchor, begin, commit, entry, ids, more, name, said, seen, user, write};

type Pair = (Arc<dyn Store>, Arc<dyn TapeStore>);

/// A tape store that refuses to append while it is told to.
struct Failing {
    inner: Arc<dyn TapeStore>,
    fails: AtomicBool,
}

#[async_trait]
impl TapeStore for Failing {
    async fn append(&self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError> {
        if self.fails.load(Ordering::Relaxed) {
            // The worst there is: some of it was kept, and nobody was told.
            self.inner.append(tape, entries.get(..1).unwrap_or_default()).await?;
            return Err(StoreError::io("append", "no space left on device"));
        }
        self.inner.append(tape, entries).await
    }

    async fn read(&self, tape: &TapeName, slice: &Slice) -> Result<Vec<Entry>, StoreError> {
        self.inner.read(tape, slice).await
    }

    async fn tapes(&self) -> Result<Vec<TapeName>, StoreError> {
        self.inner.tapes().await
    }
}

async fn kept(store: &dyn TapeStore, tape: &TapeName) -> Vec<u64> {
    ids(&store.read(tape, &Slice::all()).await.unwrap())
}

pub(super) async fn d09_entries_move_to_the_tape_store((store, files): Pair) {
    let tape = name("t");
    let tapes = Tapes::kept_by(Arc::clone(&store), Arc::clone(&files));
    write(&tapes, begin(&tape, [anchor("a"), user("one")])).await;
    write(&tapes, more(&tape, [user("two")])).await;
    assert_eq!(kept(&*files, &tape).await, [1, 2, 3]);
    assert!(all(&*store, &tape).await.is_empty(), "the store keeps them no longer");
    assert_eq!(seen(&tapes, &tape).await, ["a", "one", "two"]);
    let record = tapes.record(&tape).await.unwrap().unwrap();
    assert_eq!((record.head, record.handed_over), (EntryId(3), EntryId(3)));
    assert_eq!(tapes.list().await.unwrap(), [record]);
}

pub(super) async fn d09_nothing_is_lost_while_the_tape_store_fails((store, files): Pair) {
    let tape = name("t");
    let failing = Arc::new(Failing { inner: Arc::clone(&files), fails: AtomicBool::new(false) });
    let tapes = Tapes::kept_by(Arc::clone(&store), Arc::clone(&failing) as Arc<dyn TapeStore>);
    write(&tapes, begin(&tape, [anchor("a"), user("one")])).await;
    failing.fails.store(true, Ordering::Relaxed);
    write(&tapes, more(&tape, [user("two"), user("three")])).await;
    write(&tapes, more(&tape, [anchor("b"), user("four")])).await;
    assert_eq!(kept(&*files, &tape).await, [1, 2, 3]);
    assert_eq!(seen(&tapes, &tape).await, ["a", "one", "two", "three", "b", "four"], "reads see both, once");
    assert_eq!(said(&tapes.window(&tape).await.unwrap().following), ["four"]);
    let newest = Slice { limit: Some(3), ..Slice::last() };
    assert_eq!(ids(&tapes.read(&tape, &newest).await.unwrap()), [6, 5, 4]);
    let oldest = Slice { limit: Some(2), ..Slice::after(EntryId(2)) };
    assert_eq!(ids(&tapes.read(&tape, &oldest).await.unwrap()), [3, 4]);

    failing.fails.store(false, Ordering::Relaxed);
    write(&tapes, more(&tape, [user("five")])).await;
    assert_eq!(kept(&*files, &tape).await, [1, 2, 3, 4, 5, 6, 7]);
    assert!(all(&*store, &tape).await.is_empty());
    assert_eq!(seen(&tapes, &tape).await, ["a", "one", "two", "three", "b", "four", "five"]);
}

pub(super) async fn d09_a_tape_that_was_begun_elsewhere_goes_on((store, files): Pair) {
    let tape = name("t");
    let old = [
        entry(4, "anchor", json!({"name": "old", "state": {}})),
        entry(7, "message", json!({"role": "user", "content": "before"})),
    ];
    files.append(&tape, &old).await.unwrap();
    let tapes = Tapes::kept_by(Arc::clone(&store), Arc::clone(&files));
    assert_eq!(tapes.record(&tape).await.unwrap().unwrap().head, EntryId(7));
    assert_eq!(seen(&tapes, &tape).await, ["old", "before"]);
    write(&tapes, begin(&tape, [user("after")])).await;
    assert_eq!(kept(&*files, &tape).await, [4, 7, 8]);
    tapes.fork(&tape, &name("f"), Some(EntryId(7))).await.unwrap();
    assert_eq!(seen(&tapes, &name("f")).await, ["old", "before"]);
}

pub(super) async fn d09_a_tape_of_the_store_moves_as_a_whole((store, files): Pair) {
    let tape = name("t");
    commit(&*store, begin(&tape, [user("one"), user("two")])).await;
    let tapes = Tapes::kept_by(Arc::clone(&store), Arc::clone(&files));
    assert_eq!(seen(&tapes, &tape).await, ["one", "two"]);
    write(&tapes, more(&tape, [user("three")])).await;
    assert_eq!(kept(&*files, &tape).await, [1, 2, 3]);
    assert_eq!(seen(&tapes, &tape).await, ["one", "two", "three"]);
}

pub(super) async fn d09_a_tape_that_is_kept_elsewhere_cannot_be_written_without_it((store, files): Pair) {
    let tape = name("t");
    files.append(&name("adopted"), &[entry(3, "event", json!({}))]).await.unwrap();
    let tapes = Tapes::kept_by(Arc::clone(&store), Arc::clone(&files));
    write(&tapes, begin(&tape, [user("one")])).await;
    tapes.fork(&name("adopted"), &name("f"), None).await.unwrap();
    let alone = Tapes::new(Arc::clone(&store));
    for tape in [tape, name("adopted")] {
        let elsewhere = StoreError::Elsewhere { tape: tape.clone() };
        assert_eq!(alone.commit(more(&tape, [user("two")])).await, Err(elsewhere.clone()));
        assert_eq!(alone.reset(&tape, false).await, Err(elsewhere));
    }
    write(&alone, begin(&name("new"), [user("one")])).await;
}

pub(super) async fn d09_what_is_kept_elsewhere_is_not_taken_for_nothing((store, files): Pair) {
    let tape = name("t");
    let tapes = Tapes::kept_by(Arc::clone(&store), Arc::clone(&files));
    write(&tapes, begin(&tape, [anchor("a"), user("one")])).await;
    tapes.reset(&tape, false).await.unwrap();
    // What a host writes whose tape store fails waits in the store itself.
    commit(&*store, more(&tape, [user("waits")])).await;

    let alone = Tapes::new(Arc::clone(&store));
    let elsewhere = StoreError::Elsewhere { tape: tape.clone() };
    assert_eq!(alone.read(&tape, &Slice::all()).await, Err(elsewhere.clone()));
    assert_eq!(alone.read(&tape, &Slice::last()).await, Err(elsewhere.clone()), "however little is asked for");
    assert_eq!(alone.read_generation(&tape, 1, &Slice::all()).await, Err(elsewhere.clone()));
    assert_eq!(alone.window(&tape).await, Err(elsewhere.clone()));
    assert_eq!(alone.query(&tape, &Query::default()).await, Err(elsewhere.clone()));
    assert_eq!(alone.last_anchor(&tape).await, Err(elsewhere.clone()));

    assert_eq!(alone.read(&tape, &Slice::after(EntryId(3))).await, Err(elsewhere));
    let waiting = alone.read(&tape, &Slice::after(EntryId(4))).await.unwrap();
    assert_eq!(said(&waiting), ["waits"], "what was not handed over can be read");
    let record = alone.record(&tape).await.unwrap().unwrap();
    assert_eq!((record.head, record.handed_over), (EntryId(5), EntryId(4)));
    assert_eq!(alone.list().await.unwrap(), [record]);
    assert_eq!(store.verify().await.unwrap(), [], "nothing is wrong with the store");
}

pub(super) async fn d09_a_fork_of_what_is_kept_elsewhere_needs_it_too((store, files): Pair) {
    let (tape, fork) = (name("t"), name("f"));
    let tapes = Tapes::kept_by(Arc::clone(&store), Arc::clone(&files));
    write(&tapes, begin(&tape, [user("one"), user("two")])).await;
    tapes.fork(&tape, &fork, Some(EntryId(1))).await.unwrap();

    let alone = Tapes::new(Arc::clone(&store));
    write(&alone, more(&fork, [anchor("a"), user("its own")])).await;
    let elsewhere = StoreError::Elsewhere { tape };
    assert_eq!(alone.read(&fork, &Slice::all()).await, Err(elsewhere.clone()));
    assert_eq!(alone.last_anchor(&fork).await, Err(elsewhere));
    let own = alone.read(&fork, &Slice::after(EntryId(1))).await.unwrap();
    assert_eq!(said(&own), ["a", "its own"], "nothing of the parent is asked for");
}

pub(super) async fn d09_a_fork_that_is_kept_elsewhere_is_not_merged_without_it((store, files): Pair) {
    let (tape, fork) = (name("t"), name("f"));
    let alone = Tapes::new(Arc::clone(&store));
    write(&alone, begin(&tape, [user("one")])).await;
    alone.fork(&tape, &fork, None).await.unwrap();
    let tapes = Tapes::kept_by(Arc::clone(&store), Arc::clone(&files));
    write(&tapes, more(&fork, [user("two")])).await;

    assert_eq!(alone.merge(&fork).await, Err(StoreError::Elsewhere { tape: fork.clone() }));
    tapes.merge(&fork).await.unwrap();
    assert!(seen(&tapes, &tape).await.contains(&"two".to_owned()));
}
