//! One writer per session.

use capstan_protocol::SessionId;
use capstan_tape::{Assigned, Batch, Epoch, Fact, Fence, LeaseRecord, Store, StoreError};

use super::fixture::{all, at, begin, commit, just, more, name, said, user};

fn take(owner: &str, now: i64, until: i64) -> Fact {
    let (now, until) = (at(now), at(until));
    Fact::TakeLease { session: "s".into(), owner: owner.into(), now, until, dead_owner: None }
}

fn release(owner: &str) -> Fact {
    Fact::ReleaseLease { session: "s".into(), owner: owner.into() }
}

/// The epoch that a wish for the lease was given.
async fn ask(store: &dyn Store, wish: Fact) -> Option<u64> {
    match commit(store, just(wish)).await.assigned[..] {
        [Assigned::Lease(epoch)] => epoch.map(|epoch| epoch.0),
        ref other => panic!("a wish for a lease was answered with {other:?}"),
    }
}

pub(super) async fn a_lease_has_one_owner(store: &dyn Store) {
    let session = SessionId::new("s");
    assert_eq!(store.lease(&session).await.unwrap(), None);
    assert_eq!(ask(store, take("a", 0, 100)).await, Some(1));
    assert_eq!(ask(store, take("b", 50, 150)).await, None, "another holds it");
    assert_eq!(ask(store, take("a", 60, 200)).await, Some(1), "its owner extends it");
    let held = LeaseRecord { session: session.clone(), epoch: Epoch(1), owner: Some("a".into()), until: at(200) };
    assert_eq!(store.lease(&session).await.unwrap(), Some(held));
    assert_eq!(ask(store, take("b", 199, 300)).await, None);
    assert_eq!(ask(store, take("b", 200, 300)).await, Some(2), "it has expired");
    commit(store, just(release("a"))).await;
    assert_eq!(ask(store, take("a", 250, 350)).await, None, "only its owner can release it");
    commit(store, just(release("b"))).await;
    let free = LeaseRecord { session: session.clone(), epoch: Epoch(2), owner: None, until: at(300) };
    assert_eq!(store.lease(&session).await.unwrap(), Some(free));
    assert_eq!(ask(store, take("b", 260, 400)).await, Some(3), "taken anew, it is another lease");
    let knowing = |dead: &str| Fact::TakeLease {
        session: "s".into(),
        owner: "c".into(),
        now: at(270),
        until: at(500),
        dead_owner: Some(dead.into()),
    };
    assert_eq!(ask(store, knowing("x")).await, None);
    assert_eq!(ask(store, knowing("b")).await, Some(4), "its owner is known to be gone");

    let mut batch = just(take("b", 280, 600));
    batch.push(Fact::PutState { session: "s".into(), key: "k".into(), value: true.into() });
    assert_eq!(commit(store, batch).await.assigned, [Assigned::Lease(None), Assigned::Nothing]);
    assert_eq!(store.state(&session).await.unwrap().len(), 1, "a wish that is not granted fails no batch");
}

pub(super) async fn a_fence_refuses_whoever_lost_the_lease(store: &dyn Store) {
    let tape = name("t");
    let fenced = |epoch, batch: Batch| {
        let fence = Fence { session: "s".into(), epoch: Epoch(epoch) };
        Batch { fence: Some(fence), ..batch }
    };
    let refused = Err(StoreError::Fenced { session: "s".into() });
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
