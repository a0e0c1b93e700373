//! Inbox, ledger, outbox, blobs, state and workspaces.

use capstan_protocol::{EntryId, Outcome, RunId, Usage};
use capstan_tape::{
    Batch, EntryRef, Fact, FactOutput, InboxRecord, OutboxRecord, OutboxStatus, RunRecord, RunStatus, Store,
    StoreError, blob_hash,
};
use serde_json::{Value, json};

use super::fixture::{
    append_batch, batch_entry, commit, create_tape_batch, entry_texts, event_key, new_outbound, read_all, run_record,
    single_fact_batch, tape_name, timestamp, user_message,
};

pub(super) async fn event_is_accepted_once_and_settled_once(store: &dyn Store) {
    let tape = tape_name("t");
    let accept = |entry| Fact::AcceptEvent {
        key: event_key("e"),
        session: "s".into(),
        tape: tape_name("t"),
        entry,
        accepted_at: timestamp(1_234),
        owner: "p".into(),
    };
    let settle = || Fact::SettleEvent { key: event_key("e"), outcome: Outcome::Silent, run_id: Some(RunId::new("r")) };
    assert_eq!(store.inbox_record(&event_key("e")).await.unwrap(), None);
    assert_eq!(
        store.commit(single_fact_batch(settle())).await,
        Err(StoreError::EventNotInFlight { key: event_key("e") })
    );

    let mut batch = create_tape_batch(&tape, [user_message("hello")]);
    batch.push(accept(batch_entry(1)));
    commit(store, batch).await;
    let open = InboxRecord {
        key: event_key("e"),
        session: "s".into(),
        tape: tape.clone(),
        entry: EntryId(1),
        accepted_at: timestamp(1_234),
        outcome: None,
    };
    assert_eq!(store.inbox_record(&event_key("e")).await.unwrap(), Some(open.clone()));

    let mut duplicate = append_batch(&tape, [user_message("again")]);
    duplicate.push(accept(EntryRef::Id(EntryId(1))));
    assert_eq!(store.commit(duplicate).await, Err(StoreError::DuplicateEvent { key: event_key("e") }));
    assert_eq!(entry_texts(&read_all(store, &tape).await), ["hello"], "nothing of a duplicate is stored");

    commit(store, single_fact_batch(settle())).await;
    let settled = InboxRecord { outcome: Some((Outcome::Silent, Some(RunId::new("r")))), ..open };
    assert_eq!(store.inbox_record(&event_key("e")).await.unwrap(), Some(settled));
    assert_eq!(
        store.commit(single_fact_batch(settle())).await,
        Err(StoreError::EventNotInFlight { key: event_key("e") })
    );

    let mut both = single_fact_batch(Fact::AcceptEvent {
        key: event_key("f"),
        session: "s".into(),
        tape,
        entry: EntryRef::Id(EntryId(1)),
        accepted_at: timestamp(2),
        owner: "p".into(),
    });
    both.push(Fact::SettleEvent { key: event_key("f"), outcome: Outcome::Dropped, run_id: None });
    commit(store, both).await;
    assert_eq!(store.inbox_record(&event_key("f")).await.unwrap().unwrap().outcome, Some((Outcome::Dropped, None)));
}

pub(super) async fn runs_are_stored_and_listed_newest_first(store: &dyn Store) {
    for id in ["r1", "r3", "r2"] {
        commit(store, single_fact_batch(Fact::OpenRun(Box::new(run_record(id, timestamp(7)))))).await;
    }
    assert_eq!(store.run(&RunId::new("r1")).await.unwrap(), Some(run_record("r1", timestamp(7))));
    assert_eq!(store.run(&RunId::new("none")).await.unwrap(), None);
    let usage = Some(Usage { total_tokens: Some(12), ..Usage::default() });
    let end = |id| Fact::EndRun {
        run_id: RunId::new(id),
        status: RunStatus::Failed,
        usage: usage.clone(),
        ended_at: timestamp(9),
    };
    commit(store, single_fact_batch(end("r1"))).await;
    let ended = RunRecord {
        status: RunStatus::Failed,
        usage: usage.clone(),
        ended_at: Some(timestamp(9)),
        ..run_record("r1", timestamp(7))
    };
    assert_eq!(store.run(&RunId::new("r1")).await.unwrap(), Some(ended));
    let again =
        Fact::EndRun { run_id: RunId::new("r1"), status: RunStatus::Completed, usage: None, ended_at: timestamp(10) };
    commit(store, single_fact_batch(again)).await;
    let status = store.run(&RunId::new("r1")).await.unwrap().unwrap().status;
    assert_eq!(status, RunStatus::Failed, "a run ends once");
    let listed: Vec<RunId> = store.run_page(None, 2).await.unwrap().into_iter().map(|run| run.run_id).collect();
    assert_eq!(listed, [RunId::new("r2"), RunId::new("r3")], "in the order of their opening, newest first");
    assert!(store.commit(single_fact_batch(end("none"))).await.is_err());
    assert!(store.commit(single_fact_batch(Fact::OpenRun(Box::new(run_record("r1", timestamp(8)))))).await.is_err());
}

pub(super) async fn outbox_preserves_the_order_of_messages(store: &dyn Store) {
    let batch = Batch {
        facts: ["one", "two"].map(|text| Fact::EnqueueOutbound(new_outbound(text))).to_vec(),
        ..Batch::default()
    };
    let committed = commit(store, batch).await;
    let rows = store.outbox_records(&event_key("e")).collect().await.unwrap();
    let texts: Vec<String> = rows.iter().map(|row| row.message.content.text()).collect();
    assert_eq!(texts, ["one", "two"]);
    assert_eq!(committed.outputs, [FactOutput::Outbox(rows[0].id), FactOutput::Outbox(rows[1].id)]);
    let waiting = OutboxRecord {
        id: rows[0].id,
        message: new_outbound("one").message,
        event: event_key("e"),
        staged_at: timestamp(5),
        owner: Some("p1".to_owned()),
        status: OutboxStatus::waiting(),
    };
    assert_eq!(rows[0], waiting);
    let status = OutboxStatus::Undelivered { reason: "gone".into() };
    commit(store, single_fact_batch(Fact::RecordDelivery { id: rows[0].id, status: status.clone() })).await;
    let statuses: Vec<OutboxStatus> =
        store.outbox_records(&event_key("e")).collect().await.unwrap().into_iter().map(|row| row.status).collect();
    assert_eq!(statuses, [status, OutboxStatus::waiting()]);
    assert_eq!(store.outbox_records(&event_key("other")).collect().await.unwrap(), []);
    let unknown = Fact::RecordDelivery { id: capstan_tape::OutboxId(999), status: OutboxStatus::sent() };
    assert!(store.commit(single_fact_batch(unknown)).await.is_err());
}

pub(super) async fn blobs_state_and_workspaces_are_stored(store: &dyn Store) {
    let bytes = vec![0_u8, 159, 146, 150];
    let hash = blob_hash(&bytes);
    assert_eq!(store.blob(&hash).await.unwrap(), None);
    for _ in 0..2 {
        commit(store, single_fact_batch(Fact::PutBlob { hash: hash.clone(), bytes: bytes.as_slice().into() })).await;
    }
    assert_eq!(store.blob(&hash).await.unwrap(), Some(bytes.clone()));
    let (put, remove) =
        (Fact::PutBlob { hash: hash.clone(), bytes: bytes.as_slice().into() }, Fact::RemoveBlob { hash: hash.clone() });
    for _ in 0..2 {
        commit(store, single_fact_batch(remove.clone())).await;
        assert_eq!(store.blob(&hash).await.unwrap(), None);
    }
    // A removed blob can be put again, within a batch too.
    commit(store, Batch { facts: vec![put.clone(), remove, put], ..Batch::new() }).await;
    assert_eq!(store.blob(&hash).await.unwrap(), Some(bytes));

    let put = |key: &str, value| Fact::PutState { tape: tape_name("t"), key: key.to_owned(), value };
    commit(store, single_fact_batch(put("a", json!({"deep": [1, "你好"]})))).await;
    commit(store, single_fact_batch(put("b", json!(1)))).await;
    commit(store, single_fact_batch(put("b", json!(2)))).await;
    commit(store, single_fact_batch(put("c", json!("gone")))).await;
    commit(store, single_fact_batch(put("c", Value::Null))).await;
    let state = Value::Object(store.state(&tape_name("t")).await.unwrap());
    assert_eq!(state, json!({"a": {"deep": [1, "你好"]}, "b": 2}));
    assert!(store.state(&tape_name("other")).await.unwrap().is_empty());

    let register = |identity: &str| Fact::RegisterWorkspace { path: "/w".into(), identity: identity.into() };
    commit(store, single_fact_batch(register("first"))).await;
    commit(store, single_fact_batch(register("second"))).await;
    assert_eq!(store.workspace("/w").await.unwrap(), Some("first".into()));
    assert_eq!(store.workspace("/elsewhere").await.unwrap(), None);
}
