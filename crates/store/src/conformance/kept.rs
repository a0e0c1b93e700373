//! What is kept under a key.

use capstan_protocol::{RunId, Timestamp};
use capstan_tape::{Assigned, Batch, Draft, Expect, Fact, KeepWithin, Kept, Store, StoreError};
use serde_json::{Value, json};

use super::fixture::{all, begin, commit, just, name, said};

fn kept(space: &str, key: &str, value: Value) -> Kept {
    let by = (key == "b").then(|| RunId::new("r1"));
    Kept { space: space.to_owned(), key: key.to_owned(), value, at: Timestamp::from_millis(1_000), by }
}

fn keep(space: &str, key: &str, value: Value) -> Batch {
    just(Fact::Keep(kept(space, key, value)))
}

fn forget(space: &str, key: &str) -> Batch {
    just(Fact::Forget { space: space.to_owned(), key: key.to_owned(), at: Timestamp::from_millis(2_000) })
}

pub(super) async fn g06_a_value_is_kept_until_it_is_forgotten(store: &dyn Store) {
    for (space, key) in [("s", "b"), ("s", "a"), ("s", "c"), ("s2", "a"), ("other", "a")] {
        commit(store, keep(space, key, json!({"in": space, "deep": ["你好", 1.5, null]}))).await;
    }
    let found = store.kept("s", "b").await.unwrap();
    assert_eq!(found, Some(kept("s", "b", json!({"in": "s", "deep": ["你好", 1.5, null]}))));
    commit(store, keep("s", "b", json!("anew"))).await;
    assert_eq!(store.kept("s", "b").await.unwrap().unwrap().value, json!("anew"));

    let keys = async |after, limit| {
        let page = store.kept_in("s", after, limit).await.unwrap();
        page.into_iter().map(|kept| kept.key).collect::<Vec<_>>()
    };
    assert_eq!(keys(None, 10).await, ["a", "b", "c"]);
    assert_eq!(keys(None, 2).await, ["a", "b"]);
    assert_eq!(keys(Some("b"), 2).await, ["c"]);

    commit(store, forget("s", "b")).await;
    assert_eq!(store.kept("s", "b").await.unwrap(), None);
    assert_eq!(keys(None, 10).await, ["a", "c"]);
    assert_eq!(store.kept("nowhere", "a").await.unwrap(), None);
}

pub(super) async fn g06_what_there_is_no_room_for_is_told_and_costs_nothing_else(store: &dyn Store) {
    let tape = name("t");
    commit(store, begin(&tape, [])).await;
    let within = |most_rows, changes: &[(&str, Value)]| {
        Fact::KeepWithin(Box::new(KeepWithin {
            space: "s".to_owned(),
            changes: changes.iter().map(|(key, value)| kept("s", key, value.clone())).collect(),
            most_rows,
            most_bytes: 20,
            tape: name("t"),
            kept: Draft::event("kept", json!({})),
            refused: Some(Draft::event("refused", json!({}))),
        }))
    };
    let facts = vec![
        within(2, &[("a", json!(1)), ("b", json!(2))]),
        within(2, &[("b", json!(3)), ("c", json!(4))]),
        within(2, &[("a", Value::Null), ("c", json!(5))]),
        within(2, &[("c", json!("x".repeat(20)))]),
        within(0, &[("b", Value::Null)]),
    ];
    let committed = store.commit(Batch { facts, ..Batch::new() }).await.unwrap();
    assert_eq!(committed.assigned, [true, false, true, false, true].map(Assigned::Kept));
    assert_eq!(said(&all(store, &tape).await), ["kept", "refused", "kept", "refused", "kept"]);
    let left = store.kept_in("s", None, 10).await.unwrap();
    assert_eq!(left, [kept("s", "c", json!(5))]);
    let space = store.space("s").await.unwrap().unwrap();
    assert_eq!((space.rows, space.bytes), (1, 2));
}

pub(super) async fn g06_a_space_knows_how_often_it_changed_and_how_much_it_holds(store: &dyn Store) {
    assert_eq!(store.space("s").await.unwrap(), None);
    commit(store, keep("s", "key", json!("value"))).await;
    commit(store, keep("s", "key", json!("another value"))).await;
    commit(store, keep("s", "k2", json!(1))).await;
    commit(store, keep("s/below", "k", json!(1))).await;
    commit(store, forget("s", "never")).await;
    let space = store.space("s").await.unwrap().unwrap();
    assert_eq!((space.revision, space.rows, space.bytes), (3, 2, 3 + 15 + 2 + 1));
    commit(store, forget("s", "key")).await;
    let space = store.space("s").await.unwrap().unwrap();
    assert_eq!((space.revision, space.rows, space.bytes, space.at), (4, 1, 3, Timestamp::from_millis(2_000)));

    let late = Expect::Space { space: "s".to_owned(), revision: 3 };
    let batch = Batch { expect: vec![late], ..keep("s", "late", json!(1)) };
    assert_eq!(store.commit(batch).await, Err(StoreError::Changed { space: "s".to_owned() }));
    let in_time = Expect::Space { space: "s".to_owned(), revision: 4 };
    commit(store, Batch { expect: vec![in_time], ..keep("s", "in time", json!(1)) }).await;
    let new = Expect::Space { space: "new".to_owned(), revision: 0 };
    commit(store, Batch { expect: vec![new], ..keep("new", "k", json!(1)) }).await;

    let names = async |prefix| {
        let spaces = store.spaces(prefix).await.unwrap();
        spaces.into_iter().map(|space| space.space).collect::<Vec<_>>()
    };
    assert_eq!(names("s").await, ["s", "s/below"]);
    assert_eq!(names("").await, ["new", "s", "s/below"]);
    assert_eq!(names("x").await, Vec::<String>::new());
}
