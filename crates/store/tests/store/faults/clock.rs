//! Clock that jumps back.

use capstan_protocol::Timestamp;
use capstan_store::SqliteStore;
use capstan_tape::{
    Batch, EntryDraft, Fact, FactOutput, Fence, JournalStore as _, LeaseEpoch, OwnerLiveness, StoreError, TapeSlice,
};

use crate::support::{all, ids, messages, name, texts, user};

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;
const NOON_MILLIS: i64 = 20_000 * MILLIS_PER_DAY + MILLIS_PER_DAY / 2;

fn open_store() -> (tempfile::TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("capstan.db")).unwrap();
    (folder, store)
}

#[tokio::test]
async fn p01_entries_keep_their_order_when_the_clock_jumps_back() {
    let (_folder, store) = open_store();
    let tape = name("t");
    store.commit(messages(&tape, &[])).await.unwrap();
    for (text, date) in [
        ("first", NOON_MILLIS),
        ("a day earlier", NOON_MILLIS - MILLIS_PER_DAY),
        ("then on", NOON_MILLIS - MILLIS_PER_DAY + 1),
    ] {
        let mut batch = Batch::new();
        let date = Some(Timestamp::from_millis(date).into());
        batch.append(&tape, EntryDraft { date, ..user(text) });
        store.commit(batch).await.unwrap();
    }
    let entries = all(&store, &tape).await;
    assert_eq!(ids(&entries), [1, 2, 3]);
    assert_eq!(texts(&entries), ["first", "a day earlier", "then on"]);
    assert_eq!(texts(&store.read(&tape, &TapeSlice::last()).await.unwrap()), ["then on"]);
    assert_eq!(store.verify().await.unwrap(), []);
}

/// Requests the lease at this time, for an hour.
async fn request_lease(
    store: &SqliteStore,
    owner: &str,
    now: i64,
    owner_liveness: Option<OwnerLiveness>,
) -> Option<u64> {
    let (now, expires_at) = (Timestamp::from_millis(now), Timestamp::from_millis(now + MILLIS_PER_DAY / 24));
    let mut batch = Batch::new();
    batch.push(Fact::TakeLease { tape: name("t"), owner: owner.into(), now, expires_at, owner_liveness });
    match store.commit(batch).await.unwrap().outputs[..] {
        [FactOutput::Lease(epoch)] => epoch.map(|epoch| epoch.0),
        ref other => panic!("unexpected output of a lease request: {other:?}"),
    }
}

async fn commit_under_epoch(store: &SqliteStore, epoch: u64) -> Result<(), StoreError> {
    let fence = Some(Fence { tape: name("t"), epoch: LeaseEpoch(epoch) });
    store.commit(Batch { fence, ..messages(&name("t"), &["x"]) }).await.map(drop)
}

#[tokio::test]
async fn x04_lease_has_one_owner_when_the_clock_jumps_back() {
    let (_folder, store) = open_store();
    let liveness = |is_alive| Some(OwnerLiveness { owner: "a".into(), is_alive });
    assert_eq!(request_lease(&store, "a", NOON_MILLIS, None).await, Some(1));
    assert_eq!(request_lease(&store, "b", NOON_MILLIS - MILLIS_PER_DAY, liveness(true)).await, None, "a is alive");
    assert_eq!(
        request_lease(&store, "b", NOON_MILLIS - MILLIS_PER_DAY, None).await,
        None,
        "without knowledge about a, its lease has not expired"
    );
    assert_eq!(
        request_lease(&store, "a", NOON_MILLIS - MILLIS_PER_DAY, None).await,
        Some(1),
        "the owner may extend or shorten its lease"
    );
    commit_under_epoch(&store, 1).await.unwrap();
    assert_eq!(
        request_lease(&store, "b", NOON_MILLIS, liveness(true)).await,
        None,
        "a is alive, though its lease has expired"
    );
    commit_under_epoch(&store, 1).await.unwrap();
    assert_eq!(
        request_lease(&store, "b", NOON_MILLIS - 2 * MILLIS_PER_DAY, liveness(false)).await,
        Some(2),
        "a is dead, though its lease has not expired"
    );
    let fenced = StoreError::Fenced { tape: name("t") };
    assert_eq!(commit_under_epoch(&store, 1).await, Err(fenced.clone()));
    commit_under_epoch(&store, 2).await.unwrap();
    assert_eq!(
        request_lease(&store, "c", NOON_MILLIS, None).await,
        Some(3),
        "epochs only grow, whatever the clock says"
    );
    assert_eq!(commit_under_epoch(&store, 2).await, Err(fenced));
}
