//! The rows beside the entries.

use capstan_protocol::{EntryId, Outcome, RunId, Usage};
use capstan_tape::{
    AcceptedRecord, Assigned, Batch, EntryRef, Fact, OutboxRecord, OutboxStatus, RunRecord, RunStatus, Store,
    StoreError, blob_hash,
};
use serde_json::{Value, json};

use super::fixture::{all, at, begin, commit, in_batch, just, key, more, name, outbound, run_record, said, user};

pub(super) async fn an_event_is_accepted_once_and_settled_once(store: &dyn Store) {
    let tape = name("t");
    let accept = |entry| Fact::Accept {
        key: key("e"),
        session: "s".into(),
        tape: name("t"),
        entry,
        at: at(1_234),
        owner: "p".into(),
    };
    let settle = || Fact::Settle { key: key("e"), outcome: Outcome::Silent, run_id: Some(RunId::new("r")) };
    assert_eq!(store.accepted(&key("e")).await.unwrap(), None);
    assert_eq!(store.commit(just(settle())).await, Err(StoreError::NotOpen { key: key("e") }));

    let mut batch = begin(&tape, [user("hello")]);
    batch.push(accept(in_batch(1)));
    commit(store, batch).await;
    let open = AcceptedRecord {
        key: key("e"),
        session: "s".into(),
        tape: tape.clone(),
        entry: EntryId(1),
        at: at(1_234),
        outcome: None,
    };
    assert_eq!(store.accepted(&key("e")).await.unwrap(), Some(open.clone()));

    let mut twice = more(&tape, [user("again")]);
    twice.push(accept(EntryRef::Id(EntryId(1))));
    assert_eq!(store.commit(twice).await, Err(StoreError::Duplicate { key: key("e") }));
    assert_eq!(said(&all(store, &tape).await), ["hello"], "nothing of a duplicate is kept");

    commit(store, just(settle())).await;
    let settled = AcceptedRecord { outcome: Some((Outcome::Silent, Some(RunId::new("r")))), ..open };
    assert_eq!(store.accepted(&key("e")).await.unwrap(), Some(settled));
    assert_eq!(store.commit(just(settle())).await, Err(StoreError::NotOpen { key: key("e") }));

    let mut within = just(Fact::Accept {
        key: key("f"),
        session: "s".into(),
        tape,
        entry: EntryRef::Id(EntryId(1)),
        at: at(2),
        owner: "p".into(),
    });
    within.push(Fact::Settle { key: key("f"), outcome: Outcome::Dropped, run_id: None });
    commit(store, within).await;
    assert_eq!(store.accepted(&key("f")).await.unwrap().unwrap().outcome, Some((Outcome::Dropped, None)));
}

pub(super) async fn runs_are_kept_and_listed_newest_first(store: &dyn Store) {
    for id in ["r1", "r3", "r2"] {
        commit(store, just(Fact::OpenRun(Box::new(run_record(id, at(7)))))).await;
    }
    assert_eq!(store.run(&RunId::new("r1")).await.unwrap(), Some(run_record("r1", at(7))));
    assert_eq!(store.run(&RunId::new("none")).await.unwrap(), None);
    let usage = Some(Usage { total_tokens: Some(12), ..Usage::default() });
    let end = |id| Fact::EndRun { run_id: RunId::new(id), status: RunStatus::Failed, usage: usage.clone(), at: at(9) };
    commit(store, just(end("r1"))).await;
    let ended =
        RunRecord { status: RunStatus::Failed, usage: usage.clone(), ended_at: Some(at(9)), ..run_record("r1", at(7)) };
    assert_eq!(store.run(&RunId::new("r1")).await.unwrap(), Some(ended));
    let again = Fact::EndRun { run_id: RunId::new("r1"), status: RunStatus::Completed, usage: None, at: at(10) };
    commit(store, just(again)).await;
    let status = store.run(&RunId::new("r1")).await.unwrap().unwrap().status;
    assert_eq!(status, RunStatus::Failed, "a run ends once");
    let listed: Vec<RunId> = store.runs(2).await.unwrap().into_iter().map(|run| run.run_id).collect();
    assert_eq!(listed, [RunId::new("r2"), RunId::new("r3")], "the order in which they began, the newest first");
    assert!(store.commit(just(end("none"))).await.is_err());
    assert!(store.commit(just(Fact::OpenRun(Box::new(run_record("r1", at(8)))))).await.is_err());
}

pub(super) async fn the_outbox_keeps_its_order(store: &dyn Store) {
    let batch = Batch { facts: ["one", "two"].map(|text| Fact::Enqueue(outbound(text))).to_vec(), ..Batch::default() };
    let committed = commit(store, batch).await;
    let rows = store.outbox(&key("e")).await.unwrap();
    let texts: Vec<String> = rows.iter().map(|row| row.message.content.text()).collect();
    assert_eq!(texts, ["one", "two"]);
    assert_eq!(committed.assigned, [Assigned::Outbox(rows[0].id), Assigned::Outbox(rows[1].id)]);
    let waiting = OutboxRecord {
        id: rows[0].id,
        message: outbound("one").message,
        event: key("e"),
        at: at(5),
        owner: Some("p1".to_owned()),
        status: OutboxStatus::waiting(),
    };
    assert_eq!(rows[0], waiting);
    let status = OutboxStatus::Undelivered { reason: "gone".into() };
    commit(store, just(Fact::Delivery { id: rows[0].id, status: status.clone() })).await;
    let statuses: Vec<OutboxStatus> =
        store.outbox(&key("e")).await.unwrap().into_iter().map(|row| row.status).collect();
    assert_eq!(statuses, [status, OutboxStatus::waiting()]);
    assert_eq!(store.outbox(&key("other")).await.unwrap(), []);
    let nowhere = Fact::Delivery { id: capstan_tape::OutboxId(999), status: OutboxStatus::sent() };
    assert!(store.commit(just(nowhere)).await.is_err());
}

pub(super) async fn blobs_state_and_workspaces_are_kept(store: &dyn Store) {
    let bytes = vec![0_u8, 159, 146, 150];
    let hash = blob_hash(&bytes);
    assert_eq!(store.blob(&hash).await.unwrap(), None);
    for _ in 0..2 {
        commit(store, just(Fact::PutBlob { hash: hash.clone(), bytes: bytes.as_slice().into() })).await;
    }
    assert_eq!(store.blob(&hash).await.unwrap(), Some(bytes.clone()));
    let (put, remove) =
        (Fact::PutBlob { hash: hash.clone(), bytes: bytes.as_slice().into() }, Fact::RemoveBlob { hash: hash.clone() });
    for _ in 0..2 {
        commit(store, just(remove.clone())).await;
        assert_eq!(store.blob(&hash).await.unwrap(), None);
    }
    // One that was removed is put again, also within a batch.
    commit(store, Batch { facts: vec![put.clone(), remove, put], ..Batch::new() }).await;
    assert_eq!(store.blob(&hash).await.unwrap(), Some(bytes));

    let put = |key: &str, value| Fact::PutState { tape: name("t"), key: key.to_owned(), value };
    commit(store, just(put("a", json!({"deep": [1, "你好"]})))).await;
    commit(store, just(put("b", json!(1)))).await;
    commit(store, just(put("b", json!(2)))).await;
    commit(store, just(put("c", json!("gone")))).await;
    commit(store, just(put("c", Value::Null))).await;
    let state = Value::Object(store.state(&name("t")).await.unwrap());
    assert_eq!(state, json!({"a": {"deep": [1, "你好"]}, "b": 2}));
    assert!(store.state(&name("other")).await.unwrap().is_empty());

    let remember = |identity: &str| Fact::RememberWorkspace { path: "/w".into(), identity: identity.into() };
    commit(store, just(remember("first"))).await;
    commit(store, just(remember("second"))).await;
    assert_eq!(store.workspace("/w").await.unwrap(), Some("first".into()));
    assert_eq!(store.workspace("/elsewhere").await.unwrap(), None);
}
