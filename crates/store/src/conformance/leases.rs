//! Leases: one writer per tape.

use capstan_tape::{Batch, Fact, FactOutput, Fence, LeaseEpoch, LeaseRecord, OwnerLiveness, Store, StoreError};

use super::fixture::{
    append_batch, commit, create_tape_batch, entry_texts, read_all, single_fact_batch, tape_name, timestamp,
    user_message,
};

fn take_lease(owner: &str, now: i64, expires_at: i64) -> Fact {
    let (now, expires_at) = (timestamp(now), timestamp(expires_at));
    Fact::TakeLease { tape: tape_name("t"), owner: owner.into(), now, expires_at, owner_liveness: None }
}

/// Request for a lease with knowledge about the liveness of an owner.
fn take_lease_with_liveness(owner: &str, now: i64, expires_at: i64, liveness: OwnerLiveness) -> Fact {
    let (now, expires_at) = (timestamp(now), timestamp(expires_at));
    Fact::TakeLease { tape: tape_name("t"), owner: owner.into(), now, expires_at, owner_liveness: Some(liveness) }
}

fn owner_alive(owner: &str) -> OwnerLiveness {
    OwnerLiveness { owner: owner.into(), is_alive: true }
}

fn owner_dead(owner: &str) -> OwnerLiveness {
    OwnerLiveness { owner: owner.into(), is_alive: false }
}

fn release_lease(owner: &str) -> Fact {
    Fact::ReleaseLease { tape: tape_name("t"), owner: owner.into() }
}

/// Requests a lease and returns its epoch if it was granted.
async fn request_lease(store: &dyn Store, request: Fact) -> Option<u64> {
    match commit(store, single_fact_batch(request)).await.outputs[..] {
        [FactOutput::Lease(epoch)] => epoch.map(|epoch| epoch.0),
        ref other => panic!("unexpected output of a lease request: {other:?}"),
    }
}

pub(super) async fn lease_has_one_owner(store: &dyn Store) {
    let tape = tape_name("t");
    assert_eq!(store.lease(&tape).await.unwrap(), None);
    assert_eq!(request_lease(store, take_lease("a", 0, 100)).await, Some(1));
    assert_eq!(request_lease(store, take_lease("b", 50, 150)).await, None, "the lease has another owner");
    assert_eq!(request_lease(store, take_lease("a", 60, 200)).await, Some(1), "the owner extends its lease");
    let record =
        LeaseRecord { tape: tape.clone(), epoch: LeaseEpoch(1), owner: Some("a".into()), expires_at: timestamp(200) };
    assert_eq!(store.lease(&tape).await.unwrap(), Some(record));
    assert_eq!(request_lease(store, take_lease("b", 199, 300)).await, None);
    assert_eq!(request_lease(store, take_lease("b", 200, 300)).await, Some(2), "the lease has expired");
    commit(store, single_fact_batch(release_lease("a"))).await;
    assert_eq!(request_lease(store, take_lease("a", 250, 350)).await, None, "only the owner can release a lease");
    commit(store, single_fact_batch(release_lease("b"))).await;
    let released = LeaseRecord { tape: tape.clone(), epoch: LeaseEpoch(2), owner: None, expires_at: timestamp(300) };
    assert_eq!(store.lease(&tape).await.unwrap(), Some(released));
    assert_eq!(request_lease(store, take_lease("b", 260, 400)).await, Some(3), "a new lease has a new epoch");

    let mut batch = single_fact_batch(take_lease("c", 280, 600));
    batch.push(Fact::PutState { tape: tape.clone(), key: "k".into(), value: true.into() });
    assert_eq!(commit(store, batch).await.outputs, [FactOutput::Lease(None), FactOutput::Nothing]);
    assert_eq!(store.state(&tape).await.unwrap().len(), 1, "a denied request does not fail the batch");
}

pub(super) async fn live_owner_keeps_its_expired_lease(store: &dyn Store) {
    request_lease(store, take_lease("a", 0, 100)).await;
    assert_eq!(request_lease(store, take_lease_with_liveness("b", 500, 600, owner_alive("a"))).await, None);
    let record =
        LeaseRecord { tape: tape_name("t"), epoch: LeaseEpoch(1), owner: Some("a".into()), expires_at: timestamp(100) };
    assert_eq!(store.lease(&tape_name("t")).await.unwrap(), Some(record), "a denied request changes nothing");
    assert_eq!(request_lease(store, take_lease("a", 500, 600)).await, Some(1), "the owner still holds its lease");
    commit(store, single_fact_batch(release_lease("a"))).await;
    assert_eq!(
        request_lease(store, take_lease_with_liveness("b", 510, 700, owner_alive("a"))).await,
        Some(2),
        "the owner is alive, but has released the lease"
    );
    assert_eq!(request_lease(store, take_lease_with_liveness("c", 699, 800, owner_alive("a"))).await, None);
    assert_eq!(
        request_lease(store, take_lease_with_liveness("c", 700, 800, owner_alive("a"))).await,
        Some(3),
        "the liveness of b is unknown, so its lease expires"
    );
}

pub(super) async fn lease_of_a_dead_owner_is_void_at_once(store: &dyn Store) {
    request_lease(store, take_lease("a", 0, 100)).await;
    assert_eq!(
        request_lease(store, take_lease_with_liveness("b", 10, 200, owner_dead("x"))).await,
        None,
        "another owner is dead"
    );
    assert_eq!(request_lease(store, take_lease_with_liveness("b", 10, 200, owner_dead("a"))).await, Some(2));
    assert_eq!(
        request_lease(store, take_lease_with_liveness("c", 20, 300, owner_dead("a"))).await,
        None,
        "the lease has a new owner"
    );
    assert_eq!(
        request_lease(store, take_lease_with_liveness("b", 30, 300, owner_dead("b"))).await,
        Some(2),
        "an owner that requests its own lease is alive"
    );
}

pub(super) async fn every_tape_has_a_lease_of_its_own(store: &dyn Store) {
    let take = |tape: &str, owner: &str| {
        let (tape, owner) = (tape_name(tape), owner.to_owned());
        Fact::TakeLease { tape, owner, now: timestamp(0), expires_at: timestamp(100), owner_liveness: None }
    };
    assert_eq!(request_lease(store, take("t", "a")).await, Some(1));
    assert_eq!(request_lease(store, take("u", "b")).await, Some(1));
    assert_eq!(request_lease(store, take("u", "a")).await, None);
    let release = Fact::ReleaseLease { tape: tape_name("u"), owner: "b".into() };
    commit(store, single_fact_batch(release)).await;
    assert_eq!(store.lease(&tape_name("t")).await.unwrap().unwrap().owner, Some("a".into()));
    let fence = |tape: &str| Some(Fence { tape: tape_name(tape), epoch: LeaseEpoch(1) });
    commit(store, Batch { fence: fence("t"), ..create_tape_batch(&tape_name("t"), []) }).await;
    let refused = store.commit(Batch { fence: fence("u"), ..create_tape_batch(&tape_name("u"), []) }).await;
    assert_eq!(refused, Err(StoreError::Fenced { tape: tape_name("u") }));
}

pub(super) async fn fence_rejects_writers_without_the_lease(store: &dyn Store) {
    let tape = tape_name("t");
    let fenced = |epoch, batch: Batch| {
        let fence = Fence { tape: tape_name("t"), epoch: LeaseEpoch(epoch) };
        Batch { fence: Some(fence), ..batch }
    };
    let fenced_error = Err(StoreError::Fenced { tape: tape.clone() });
    commit(store, create_tape_batch(&tape, [])).await;
    assert_eq!(
        store.commit(fenced(1, append_batch(&tape, [user_message("without a lease")]))).await,
        fenced_error,
        "a fenced batch needs a lease"
    );
    request_lease(store, take_lease("a", 0, 100)).await;
    commit(store, fenced(1, append_batch(&tape, [user_message("by a")]))).await;
    request_lease(store, take_lease("b", 100, 200)).await;
    assert_eq!(store.commit(fenced(1, append_batch(&tape, [user_message("by a, too late")]))).await, fenced_error);
    let mut last = fenced(2, append_batch(&tape, [user_message("by b")]));
    last.push(release_lease("b"));
    commit(store, last).await;
    assert_eq!(
        store.commit(fenced(2, append_batch(&tape, [user_message("by b, after its release")]))).await,
        fenced_error
    );
    assert_eq!(entry_texts(&read_all(store, &tape).await), ["by a", "by b"]);
}
