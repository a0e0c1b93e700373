//! What a tape store keeps.

use capstan_tape::{Slice, TapeStore};

use super::fixture::{entry, ids, name, odd_entries};

pub(super) async fn entries_come_back_as_they_were(store: &dyn TapeStore) {
    let tape = name("t");
    store.append(&tape, &odd_entries()).await.unwrap();
    let next = entry(12, "event", serde_json::json!({"name": "later"}));
    store.append(&tape, std::slice::from_ref(&next)).await.unwrap();
    store.append(&name("other"), std::slice::from_ref(&next)).await.unwrap();
    let mut expected = odd_entries();
    expected.push(next);
    assert_eq!(store.read(&tape, &Slice::all()).await.unwrap(), expected);
    assert_eq!(store.tapes().await.unwrap(), [name("other"), name("t")]);
    assert_eq!(store.verify().await.unwrap(), []);
    store.close().await.unwrap();
}

pub(super) async fn the_same_entry_may_come_again(store: &dyn TapeStore) {
    let tape = name("t");
    let event = |id| entry(id, "event", serde_json::json!({"n": id}));
    store.append(&tape, &[event(1), event(2)]).await.unwrap();
    store.append(&tape, &[event(1), event(2), event(3)]).await.unwrap();
    store.append(&tape, &[event(2)]).await.unwrap();
    store.append(&tape, &[]).await.unwrap();
    assert_eq!(ids(&store.read(&tape, &Slice::all()).await.unwrap()), [1, 2, 3]);
}

pub(super) async fn an_unknown_tape_has_no_entries(store: &dyn TapeStore) {
    assert_eq!(store.read(&name("unknown"), &Slice::all()).await.unwrap(), []);
    assert_eq!(store.tapes().await.unwrap(), []);
}
