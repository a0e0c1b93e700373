//! Contract of external tape stores.

use capstan_tape::{TapeSlice, TapeStore};

use super::fixture::{entry, entry_ids, tape_name, unusual_entries};

pub(super) async fn entries_are_preserved(store: &dyn TapeStore) {
    let tape = tape_name("t");
    store.append(&tape, &unusual_entries()).await.unwrap();
    let next = entry(12, "event", serde_json::json!({"name": "later"}));
    store.append(&tape, std::slice::from_ref(&next)).await.unwrap();
    store.append(&tape_name("other"), std::slice::from_ref(&next)).await.unwrap();
    let mut expected = unusual_entries();
    expected.push(next);
    assert_eq!(store.read(&tape, &TapeSlice::all()).await.unwrap(), expected);
    assert_eq!(store.tapes().await.unwrap(), [tape_name("other"), tape_name("t")]);
    assert_eq!(store.verify().await.unwrap(), []);
    store.close().await.unwrap();
}

pub(super) async fn the_same_entry_may_be_appended_again(store: &dyn TapeStore) {
    let tape = tape_name("t");
    let event = |id| entry(id, "event", serde_json::json!({"n": id}));
    store.append(&tape, &[event(1), event(2)]).await.unwrap();
    store.append(&tape, &[event(1), event(2), event(3)]).await.unwrap();
    store.append(&tape, &[event(2)]).await.unwrap();
    store.append(&tape, &[]).await.unwrap();
    assert_eq!(entry_ids(&store.read(&tape, &TapeSlice::all()).await.unwrap()), [1, 2, 3]);
}

pub(super) async fn unknown_tape_has_no_entries(store: &dyn TapeStore) {
    assert_eq!(store.read(&tape_name("unknown"), &TapeSlice::all()).await.unwrap(), []);
    assert_eq!(store.tapes().await.unwrap(), []);
}
