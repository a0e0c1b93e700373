//! A clock that jumps back.

use capstan_protocol::Timestamp;
use capstan_store::SqliteStore;
use capstan_tape::{Assigned, Batch, Draft, Epoch, Fact, Fence, Judged, Slice, Store as _, StoreError};

use crate::support::{all, ids, messages, name, texts, user};

const DAY: i64 = 24 * 60 * 60 * 1000;
const NOON: i64 = 20_000 * DAY + DAY / 2;

fn open() -> (tempfile::TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("capstan.db")).unwrap();
    (folder, store)
}

#[tokio::test]
async fn p01_entries_stand_in_the_order_they_were_written_when_the_clock_jumps_back() {
    let (_folder, store) = open();
    let tape = name("t");
    store.commit(messages(&tape, &[])).await.unwrap();
    for (text, date) in [("first", NOON), ("a day earlier", NOON - DAY), ("and on", NOON - DAY + 1)] {
        let mut batch = Batch::new();
        let date = Some(Timestamp::from_millis(date).into());
        batch.append(&tape, Draft { date, ..user(text) });
        store.commit(batch).await.unwrap();
    }
    let entries = all(&store, &tape).await;
    assert_eq!(ids(&entries), [1, 2, 3]);
    assert_eq!(texts(&entries), ["first", "a day earlier", "and on"]);
    assert_eq!(texts(&store.read(&tape, &Slice::last()).await.unwrap()), ["and on"]);
    assert_eq!(store.verify().await.unwrap(), []);
}

/// Asks for the lease at this time, for an hour.
async fn ask(store: &SqliteStore, owner: &str, now: i64, judged: Option<Judged>) -> Option<u64> {
    let (now, until) = (Timestamp::from_millis(now), Timestamp::from_millis(now + DAY / 24));
    let mut batch = Batch::new();
    batch.push(Fact::TakeLease { tape: name("t"), owner: owner.into(), now, until, judged });
    match store.commit(batch).await.unwrap().assigned[..] {
        [Assigned::Lease(epoch)] => epoch.map(|epoch| epoch.0),
        ref other => panic!("a wish for a lease was answered with {other:?}"),
    }
}

async fn write_under(store: &SqliteStore, epoch: u64) -> Result<(), StoreError> {
    let fence = Some(Fence { tape: name("t"), epoch: Epoch(epoch) });
    store.commit(Batch { fence, ..messages(&name("t"), &["x"]) }).await.map(drop)
}

#[tokio::test]
async fn x04_a_lease_has_one_owner_when_the_clock_jumps_back() {
    let (_folder, store) = open();
    let judged = |alive| Some(Judged { owner: "a".into(), alive });
    assert_eq!(ask(&store, "a", NOON, None).await, Some(1));
    assert_eq!(ask(&store, "b", NOON - DAY, judged(true)).await, None, "a lives");
    assert_eq!(ask(&store, "b", NOON - DAY, None).await, None, "of whom nothing is known, that one keeps it longer");
    assert_eq!(ask(&store, "a", NOON - DAY, None).await, Some(1), "who holds it may extend it, or shorten it");
    write_under(&store, 1).await.unwrap();
    assert_eq!(ask(&store, "b", NOON, judged(true)).await, None, "a lives, though its hour of yesterday is over");
    write_under(&store, 1).await.unwrap();
    assert_eq!(ask(&store, "b", NOON - 2 * DAY, judged(false)).await, Some(2), "a is dead, though its hour is to come");
    let fenced = StoreError::Fenced { tape: name("t") };
    assert_eq!(write_under(&store, 1).await, Err(fenced.clone()));
    write_under(&store, 2).await.unwrap();
    assert_eq!(ask(&store, "c", NOON, None).await, Some(3), "epochs only grow, whatever the time");
    assert_eq!(write_under(&store, 2).await, Err(fenced));
}
