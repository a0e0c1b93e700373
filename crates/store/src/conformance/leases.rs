//! One writer per tape.

use capstan_tape::{Batch, Fact, FactOutput, Fence, LeaseEpoch, LeaseRecord, OwnerLiveness, Store, StoreError};

use super::fixture::{
    append_batch, commit, create_tape_batch, entry_texts, read_all, single_fact_batch, tape_name, timestamp,
    user_message,
};

fn take_lease(owner: &str, now: i64, until: i64) -> Fact {
    let (now, until) = (timestamp(now), timestamp(until));
    Fact::TakeLease { tape: tape_name("t"), owner: owner.into(), now, expires_at: until, owner_liveness: None }
}

/// A wish of somebody who knows whether another lives.
fn take_lease_with_liveness(owner: &str, now: i64, until: i64, judged: OwnerLiveness) -> Fact {
    let (now, until) = (timestamp(now), timestamp(until));
    Fact::TakeLease { tape: tape_name("t"), owner: owner.into(), now, expires_at: until, owner_liveness: Some(judged) }
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

/// The epoch that a wish for the lease was given.
async fn request_lease(store: &dyn Store, wish: Fact) -> Option<u64> {
    match commit(store, single_fact_batch(wish)).await.outputs[..] {
        [FactOutput::Lease(epoch)] => epoch.map(|epoch| epoch.0),
        ref other => panic!("a wish for a lease was answered with {other:?}"),
    }
}

pub(super) async fn a_lease_has_one_owner(store: &dyn Store) {
    let tape = tape_name("t");
    assert_eq!(store.lease(&tape).await.unwrap(), None);
    assert_eq!(request_lease(store, take_lease("a", 0, 100)).await, Some(1));
    assert_eq!(request_lease(store, take_lease("b", 50, 150)).await, None, "another holds it");
    assert_eq!(request_lease(store, take_lease("a", 60, 200)).await, Some(1), "its owner extends it");
    let held =
        LeaseRecord { tape: tape.clone(), epoch: LeaseEpoch(1), owner: Some("a".into()), expires_at: timestamp(200) };
    assert_eq!(store.lease(&tape).await.unwrap(), Some(held));
    assert_eq!(request_lease(store, take_lease("b", 199, 300)).await, None);
    assert_eq!(request_lease(store, take_lease("b", 200, 300)).await, Some(2), "it has expired");
    commit(store, single_fact_batch(release_lease("a"))).await;
    assert_eq!(request_lease(store, take_lease("a", 250, 350)).await, None, "only its owner can release it");
    commit(store, single_fact_batch(release_lease("b"))).await;
    let free = LeaseRecord { tape: tape.clone(), epoch: LeaseEpoch(2), owner: None, expires_at: timestamp(300) };
    assert_eq!(store.lease(&tape).await.unwrap(), Some(free));
    assert_eq!(request_lease(store, take_lease("b", 260, 400)).await, Some(3), "taken anew, it is another lease");

    let mut batch = single_fact_batch(take_lease("c", 280, 600));
    batch.push(Fact::PutState { tape: tape.clone(), key: "k".into(), value: true.into() });
    assert_eq!(commit(store, batch).await.outputs, [FactOutput::Lease(None), FactOutput::Nothing]);
    assert_eq!(store.state(&tape).await.unwrap().len(), 1, "a wish that is not granted fails no batch");
}

pub(super) async fn an_owner_that_is_alive_keeps_its_lease_past_its_time(store: &dyn Store) {
    request_lease(store, take_lease("a", 0, 100)).await;
    assert_eq!(request_lease(store, take_lease_with_liveness("b", 500, 600, owner_alive("a"))).await, None);
    let held =
        LeaseRecord { tape: tape_name("t"), epoch: LeaseEpoch(1), owner: Some("a".into()), expires_at: timestamp(100) };
    assert_eq!(store.lease(&tape_name("t")).await.unwrap(), Some(held), "a refused wish changes nothing");
    assert_eq!(request_lease(store, take_lease("a", 500, 600)).await, Some(1), "it is still its own");
    commit(store, single_fact_batch(release_lease("a"))).await;
    assert_eq!(
        request_lease(store, take_lease_with_liveness("b", 510, 700, owner_alive("a"))).await,
        Some(2),
        "it lives, but gave it back"
    );
    assert_eq!(request_lease(store, take_lease_with_liveness("c", 699, 800, owner_alive("a"))).await, None);
    assert_eq!(
        request_lease(store, take_lease_with_liveness("c", 700, 800, owner_alive("a"))).await,
        Some(3),
        "nothing is known about b but time"
    );
}

pub(super) async fn the_lease_of_a_dead_owner_is_void_at_once(store: &dyn Store) {
    request_lease(store, take_lease("a", 0, 100)).await;
    assert_eq!(
        request_lease(store, take_lease_with_liveness("b", 10, 200, owner_dead("x"))).await,
        None,
        "another one died"
    );
    assert_eq!(request_lease(store, take_lease_with_liveness("b", 10, 200, owner_dead("a"))).await, Some(2));
    assert_eq!(
        request_lease(store, take_lease_with_liveness("c", 20, 300, owner_dead("a"))).await,
        None,
        "the lease has another owner by now"
    );
    assert_eq!(
        request_lease(store, take_lease_with_liveness("b", 30, 300, owner_dead("b"))).await,
        Some(2),
        "who asks for its own is not dead"
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

pub(super) async fn a_fence_refuses_whoever_lost_the_lease(store: &dyn Store) {
    let tape = tape_name("t");
    let fenced = |epoch, batch: Batch| {
        let fence = Fence { tape: tape_name("t"), epoch: LeaseEpoch(epoch) };
        Batch { fence: Some(fence), ..batch }
    };
    let refused = Err(StoreError::Fenced { tape: tape.clone() });
    commit(store, create_tape_batch(&tape, [])).await;
    assert_eq!(
        store.commit(fenced(1, append_batch(&tape, [user_message("nobody's")]))).await,
        refused,
        "no lease, no write"
    );
    request_lease(store, take_lease("a", 0, 100)).await;
    commit(store, fenced(1, append_batch(&tape, [user_message("a's")]))).await;
    request_lease(store, take_lease("b", 100, 200)).await;
    assert_eq!(store.commit(fenced(1, append_batch(&tape, [user_message("a's, too late")]))).await, refused);
    let mut last = fenced(2, append_batch(&tape, [user_message("b's")]));
    last.push(release_lease("b"));
    commit(store, last).await;
    assert_eq!(store.commit(fenced(2, append_batch(&tape, [user_message("b's, after its release")]))).await, refused);
    assert_eq!(entry_texts(&read_all(store, &tape).await), ["a's", "b's"]);
}
