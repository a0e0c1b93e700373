//! One writer per tape.

use capstan_tape::{Assigned, Batch, Epoch, Fact, Fence, Judged, LeaseRecord, Store, StoreError};

use super::fixture::{all, at, begin, commit, just, more, name, said, user};

fn take(owner: &str, now: i64, until: i64) -> Fact {
    let (now, until) = (at(now), at(until));
    Fact::TakeLease { tape: name("t"), owner: owner.into(), now, until, judged: None }
}

/// A wish of somebody who knows whether another lives.
fn take_knowing(owner: &str, now: i64, until: i64, judged: Judged) -> Fact {
    let (now, until) = (at(now), at(until));
    Fact::TakeLease { tape: name("t"), owner: owner.into(), now, until, judged: Some(judged) }
}

fn alive(owner: &str) -> Judged {
    Judged { owner: owner.into(), alive: true }
}

fn dead(owner: &str) -> Judged {
    Judged { owner: owner.into(), alive: false }
}

fn release(owner: &str) -> Fact {
    Fact::ReleaseLease { tape: name("t"), owner: owner.into() }
}

/// The epoch that a wish for the lease was given.
async fn ask(store: &dyn Store, wish: Fact) -> Option<u64> {
    match commit(store, just(wish)).await.assigned[..] {
        [Assigned::Lease(epoch)] => epoch.map(|epoch| epoch.0),
        ref other => panic!("a wish for a lease was answered with {other:?}"),
    }
}

pub(super) async fn a_lease_has_one_owner(store: &dyn Store) {
    let tape = name("t");
    assert_eq!(store.lease(&tape).await.unwrap(), None);
    assert_eq!(ask(store, take("a", 0, 100)).await, Some(1));
    assert_eq!(ask(store, take("b", 50, 150)).await, None, "another holds it");
    assert_eq!(ask(store, take("a", 60, 200)).await, Some(1), "its owner extends it");
    let held = LeaseRecord { tape: tape.clone(), epoch: Epoch(1), owner: Some("a".into()), until: at(200) };
    assert_eq!(store.lease(&tape).await.unwrap(), Some(held));
    assert_eq!(ask(store, take("b", 199, 300)).await, None);
    assert_eq!(ask(store, take("b", 200, 300)).await, Some(2), "it has expired");
    commit(store, just(release("a"))).await;
    assert_eq!(ask(store, take("a", 250, 350)).await, None, "only its owner can release it");
    commit(store, just(release("b"))).await;
    let free = LeaseRecord { tape: tape.clone(), epoch: Epoch(2), owner: None, until: at(300) };
    assert_eq!(store.lease(&tape).await.unwrap(), Some(free));
    assert_eq!(ask(store, take("b", 260, 400)).await, Some(3), "taken anew, it is another lease");

    let mut batch = just(take("c", 280, 600));
    batch.push(Fact::PutState { tape: tape.clone(), key: "k".into(), value: true.into() });
    assert_eq!(commit(store, batch).await.assigned, [Assigned::Lease(None), Assigned::Nothing]);
    assert_eq!(store.state(&tape).await.unwrap().len(), 1, "a wish that is not granted fails no batch");
}

pub(super) async fn an_owner_that_is_alive_keeps_its_lease_past_its_time(store: &dyn Store) {
    ask(store, take("a", 0, 100)).await;
    assert_eq!(ask(store, take_knowing("b", 500, 600, alive("a"))).await, None);
    let held = LeaseRecord { tape: name("t"), epoch: Epoch(1), owner: Some("a".into()), until: at(100) };
    assert_eq!(store.lease(&name("t")).await.unwrap(), Some(held), "a refused wish changes nothing");
    assert_eq!(ask(store, take("a", 500, 600)).await, Some(1), "it is still its own");
    commit(store, just(release("a"))).await;
    assert_eq!(ask(store, take_knowing("b", 510, 700, alive("a"))).await, Some(2), "it lives, but gave it back");
    assert_eq!(ask(store, take_knowing("c", 699, 800, alive("a"))).await, None);
    assert_eq!(ask(store, take_knowing("c", 700, 800, alive("a"))).await, Some(3), "nothing is known about b but time");
}

pub(super) async fn the_lease_of_a_dead_owner_is_void_at_once(store: &dyn Store) {
    ask(store, take("a", 0, 100)).await;
    assert_eq!(ask(store, take_knowing("b", 10, 200, dead("x"))).await, None, "another one died");
    assert_eq!(ask(store, take_knowing("b", 10, 200, dead("a"))).await, Some(2));
    assert_eq!(ask(store, take_knowing("c", 20, 300, dead("a"))).await, None, "the lease has another owner by now");
    assert_eq!(ask(store, take_knowing("b", 30, 300, dead("b"))).await, Some(2), "who asks for its own is not dead");
}

pub(super) async fn every_tape_has_a_lease_of_its_own(store: &dyn Store) {
    let take = |tape: &str, owner: &str| {
        let (tape, owner) = (name(tape), owner.to_owned());
        Fact::TakeLease { tape, owner, now: at(0), until: at(100), judged: None }
    };
    assert_eq!(ask(store, take("t", "a")).await, Some(1));
    assert_eq!(ask(store, take("u", "b")).await, Some(1));
    assert_eq!(ask(store, take("u", "a")).await, None);
    let release = Fact::ReleaseLease { tape: name("u"), owner: "b".into() };
    commit(store, just(release)).await;
    assert_eq!(store.lease(&name("t")).await.unwrap().unwrap().owner, Some("a".into()));
    let fence = |tape: &str| Some(Fence { tape: name(tape), epoch: Epoch(1) });
    commit(store, Batch { fence: fence("t"), ..begin(&name("t"), []) }).await;
    let refused = store.commit(Batch { fence: fence("u"), ..begin(&name("u"), []) }).await;
    assert_eq!(refused, Err(StoreError::Fenced { tape: name("u") }));
}

pub(super) async fn a_fence_refuses_whoever_lost_the_lease(store: &dyn Store) {
    let tape = name("t");
    let fenced = |epoch, batch: Batch| {
        let fence = Fence { tape: name("t"), epoch: Epoch(epoch) };
        Batch { fence: Some(fence), ..batch }
    };
    let refused = Err(StoreError::Fenced { tape: tape.clone() });
    commit(store, begin(&tape, [])).await;
    assert_eq!(store.commit(fenced(1, more(&tape, [user("nobody's")]))).await, refused, "no lease, no write");
    ask(store, take("a", 0, 100)).await;
    commit(store, fenced(1, more(&tape, [user("a's")]))).await;
    ask(store, take("b", 100, 200)).await;
    assert_eq!(store.commit(fenced(1, more(&tape, [user("a's, too late")]))).await, refused);
    let mut last = fenced(2, more(&tape, [user("b's")]));
    last.push(release("b"));
    commit(store, last).await;
    assert_eq!(store.commit(fenced(2, more(&tape, [user("b's, after its release")]))).await, refused);
    assert_eq!(said(&all(store, &tape).await), ["a's", "b's"]);
}
