//! Key-value records and namespaces.

use capstan_protocol::{RunId, Timestamp};
use capstan_tape::{
    Batch, BatchPrecondition, EntryDraft, Fact, FactOutput, KeyValueRecord, NamespaceRecord, QuotaUpdate, Store,
    StoreError,
};
use serde_json::{Value, json};

use super::fixture::{commit, create_tape_batch, entry_texts, read_all, single_fact_batch, tape_name};

fn state_entry(namespace: &str, key: &str, value: Value) -> KeyValueRecord {
    let by = (key == "b").then(|| RunId::new("r1"));
    KeyValueRecord { space: namespace.to_owned(), key: key.to_owned(), value, at: Timestamp::from_millis(1_000), by }
}

fn put_batch(namespace: &str, key: &str, value: Value) -> Batch {
    single_fact_batch(Fact::PutKeyValue(state_entry(namespace, key, value)))
}

fn delete_batch(namespace: &str, key: &str) -> Batch {
    single_fact_batch(Fact::RemoveKeyValue {
        namespace: namespace.to_owned(),
        key: key.to_owned(),
        removed_at: Timestamp::from_millis(2_000),
    })
}

pub(super) async fn g06_value_is_stored_until_it_is_removed(store: &dyn Store) {
    for (namespace, key) in [("s", "b"), ("s", "a"), ("s", "c"), ("s2", "a"), ("other", "a")] {
        commit(store, put_batch(namespace, key, json!({"in": namespace, "deep": ["你好", 1.5, null]}))).await;
    }
    let found = store.key_value("s", "b").await.unwrap();
    assert_eq!(found, Some(state_entry("s", "b", json!({"in": "s", "deep": ["你好", 1.5, null]}))));
    commit(store, put_batch("s", "b", json!("changed"))).await;
    assert_eq!(store.key_value("s", "b").await.unwrap().unwrap().value, json!("changed"));

    let keys = async |after, limit| {
        let page = store.key_value_page("s", after, limit).await.unwrap();
        page.into_iter().map(|record| record.key).collect::<Vec<_>>()
    };
    assert_eq!(keys(None, 10).await, ["a", "b", "c"]);
    assert_eq!(keys(None, 2).await, ["a", "b"]);
    assert_eq!(keys(Some("b"), 2).await, ["c"]);

    commit(store, delete_batch("s", "b")).await;
    assert_eq!(store.key_value("s", "b").await.unwrap(), None);
    assert_eq!(keys(None, 10).await, ["a", "c"]);
    assert_eq!(store.key_value("nowhere", "a").await.unwrap(), None);
}

pub(super) async fn g06_update_over_quota_is_rejected_without_failing_the_batch(store: &dyn Store) {
    let tape = tape_name("t");
    commit(store, create_tape_batch(&tape, [])).await;
    let update = |max_rows, changes: &[(&str, Value)]| {
        Fact::UpdateWithinQuota(Box::new(QuotaUpdate {
            namespace: "s".to_owned(),
            changes: changes.iter().map(|(key, value)| state_entry("s", key, value.clone())).collect(),
            max_rows,
            max_bytes: 20,
            tape: tape_name("t"),
            accepted_entry: EntryDraft::event("accepted", json!({})),
            rejected_entry: Some(EntryDraft::event("rejected", json!({}))),
        }))
    };
    let facts = vec![
        update(2, &[("a", json!(1)), ("b", json!(2))]),
        update(2, &[("b", json!(3)), ("c", json!(4))]),
        update(2, &[("a", Value::Null), ("c", json!(5))]),
        update(2, &[("c", json!("x".repeat(20)))]),
        update(0, &[("b", Value::Null)]),
    ];
    let committed = store.commit(Batch { facts, ..Batch::new() }).await.unwrap();
    assert_eq!(committed.outputs, [true, false, true, false, true].map(FactOutput::WithinQuota));
    let expected = ["accepted", "rejected", "accepted", "rejected", "accepted"];
    assert_eq!(entry_texts(&read_all(store, &tape).await), expected);
    let records = store.key_value_page("s", None, 10).await.unwrap();
    assert_eq!(records, [state_entry("s", "c", json!(5))]);
    let namespace = store.namespace("s").await.unwrap().unwrap();
    assert_eq!((namespace.rows, namespace.bytes), (1, 2));
}

pub(super) async fn g06_namespace_counts_its_changes_rows_and_bytes(store: &dyn Store) {
    assert_eq!(store.namespace("s").await.unwrap(), None);
    commit(store, put_batch("s", "key", json!("value"))).await;
    commit(store, put_batch("s", "key", json!("another value"))).await;
    commit(store, put_batch("s", "k2", json!(1))).await;
    commit(store, put_batch("s/below", "k", json!(1))).await;
    commit(store, delete_batch("s", "never")).await;
    let namespace = store.namespace("s").await.unwrap().unwrap();
    assert_eq!((namespace.revision, namespace.rows, namespace.bytes), (3, 2, 3 + 15 + 2 + 1));
    commit(store, delete_batch("s", "key")).await;
    let namespace = store.namespace("s").await.unwrap().unwrap();
    let NamespaceRecord { revision, rows, bytes, at, .. } = namespace;
    assert_eq!((revision, rows, bytes, at), (4, 1, 3, Timestamp::from_millis(2_000)));

    let stale = BatchPrecondition::NamespaceRevision { namespace: "s".to_owned(), revision: 3 };
    let batch = Batch { preconditions: vec![stale], ..put_batch("s", "late", json!(1)) };
    assert_eq!(store.commit(batch).await, Err(StoreError::NamespaceChanged { namespace: "s".to_owned() }));
    let current = BatchPrecondition::NamespaceRevision { namespace: "s".to_owned(), revision: 4 };
    commit(store, Batch { preconditions: vec![current], ..put_batch("s", "in time", json!(1)) }).await;
    let new = BatchPrecondition::NamespaceRevision { namespace: "new".to_owned(), revision: 0 };
    commit(store, Batch { preconditions: vec![new], ..put_batch("new", "k", json!(1)) }).await;

    let names = async |prefix| {
        let records = store.namespaces(prefix).collect().await.unwrap();
        records.into_iter().map(|record| record.space).collect::<Vec<_>>()
    };
    assert_eq!(names("s").await, ["s", "s/below"]);
    assert_eq!(names("").await, ["new", "s", "s/below"]);
    assert_eq!(names("x").await, Vec::<String>::new());
}
