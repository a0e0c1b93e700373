//! Entries and tapes as facts of a batch.

use capstan_protocol::{EntryId, ErrorCode};
use capstan_tape::{
    Batch, BatchPrecondition, EntryDate, EntryDraft, EntryRef, Fact, FactOutput, ForkPoint, ForkState, NewTape, Store,
    StoreError, TapeGeneration, TapeSlice,
};

use serde_json::json;

use super::fixture::{
    anchor, append_batch, batch_entry, commit, create_tape_batch, ensure_tape, entry, entry_ids, entry_texts,
    event_key, read_all, single_fact_batch, tape_name, timestamp, unusual_entries, user_message,
};

pub(super) async fn appended_entries_get_ids_and_dates(store: &dyn Store) {
    let tape = tape_name("t");
    let mut dated = user_message("two");
    dated.date = Some(EntryDate::verbatim("2001-02-03"));
    let committed = commit(store, create_tape_batch(&tape, [user_message("one"), dated])).await;
    assert_eq!(committed.outputs, [FactOutput::Nothing, FactOutput::Entry(EntryId(1)), FactOutput::Entry(EntryId(2))]);
    let entries = read_all(store, &tape).await;
    assert_eq!(entry_texts(&entries), ["one", "two"]);
    assert!(entries[0].date.timestamp().is_some(), "an entry without a date gets the time of its commit");
    assert_eq!(entries[1].date.as_str(), "2001-02-03");
    assert_eq!(store.tape(&tape).await.unwrap().unwrap().head, EntryId(2));
    assert!(read_all(store, &tape_name("unknown")).await.is_empty());
    assert_eq!(store.tape(&tape_name("unknown")).await.unwrap(), None);
}

pub(super) async fn facts_see_the_facts_before_them(store: &dyn Store) {
    let (tape, fork) = (tape_name("t"), tape_name("f"));
    let mut batch = create_tape_batch(&tape, [user_message("one")]);
    let message = batch_entry(1);
    batch.append(&tape, anchor("a").with_named_messages(vec![message]));
    batch.push(Fact::ForkTape { fork: fork.clone(), parent: tape.clone(), position: EntryId(2) });
    batch.append(&fork, user_message("on the fork"));
    batch.push(Fact::ResetTape { tape: tape.clone(), archive: false });
    batch.append(&tape, user_message("after the reset"));
    batch.push(Fact::AcceptEvent {
        key: event_key("e"),
        session: "s".into(),
        tape: tape.clone(),
        entry: message,
        accepted_at: timestamp(1),
        owner: "p".into(),
    });
    commit(store, batch).await;
    assert_eq!(read_all(store, &tape).await[1].named_messages(), [EntryId(1)]);
    assert_eq!(entry_ids(&read_all(store, &tape).await), [1, 2, 3]);
    assert_eq!(entry_ids(&read_all(store, &fork).await), [3]);
    assert_eq!(store.tape(&tape).await.unwrap().unwrap().begins_after, EntryId(2));
    assert_eq!(store.inbox_record(&event_key("e")).await.unwrap().unwrap().entry, EntryId(1));
}

pub(super) async fn batch_is_applied_completely_or_not_at_all(store: &dyn Store) {
    let (tape, other) = (tape_name("t"), tape_name("other"));
    commit(store, create_tape_batch(&tape, [user_message("one")])).await;
    let mut batch = create_tape_batch(&other, [user_message("rejected")]);
    batch.append(&tape, user_message("rejected"));
    batch.push(Fact::PutState { tape: tape.clone(), key: "k".into(), value: true.into() });
    batch.append(&tape_name("unknown"), user_message("no tape"));
    let rejected = store.commit(batch).await;
    assert_eq!(rejected, Err(StoreError::TapeNotFound { tape: tape_name("unknown") }));
    assert_eq!(store.tape(&other).await.unwrap(), None);
    assert_eq!(entry_texts(&read_all(store, &tape).await), ["one"]);
    assert!(store.state(&tape).await.unwrap().is_empty());
    commit(store, append_batch(&tape, [user_message("two")])).await;
    assert_eq!(entry_ids(&read_all(store, &tape).await), [1, 2], "a rejected batch uses no ids");

    let mut forward_reference = Batch::new();
    let entry = batch_entry(1);
    forward_reference.push(Fact::AcceptEvent {
        key: event_key("e"),
        session: "s".into(),
        tape: tape.clone(),
        entry,
        accepted_at: timestamp(1),
        owner: "p".into(),
    });
    forward_reference.append(&tape, user_message("too late"));
    assert!(store.commit(forward_reference).await.is_err(), "a fact can only refer to earlier ones");
}

pub(super) async fn existing_tape_is_not_changed(store: &dyn Store) {
    let tape = tape_name("t");
    let first =
        NewTape { session: Some("s".into()), workspace: Some("/w".into()), ..NewTape::without_session(tape.clone()) };
    commit(store, single_fact_batch(Fact::EnsureTape(first))).await;
    let second = NewTape { session: Some("x".into()), head: EntryId(9), ..NewTape::without_session(tape.clone()) };
    commit(store, single_fact_batch(Fact::EnsureTape(second))).await;
    let record = store.tape(&tape).await.unwrap().unwrap();
    assert_eq!((record.session, record.workspace), (Some("s".into()), Some("/w".into())));
    assert_eq!((record.head, record.replicated_up_to, record.generation), (EntryId(0), EntryId(0), 1));

    let continued = NewTape { head: EntryId(9), ..NewTape::without_session(tape_name("elsewhere")) };
    commit(store, single_fact_batch(Fact::EnsureTape(continued))).await;
    commit(store, append_batch(&tape_name("elsewhere"), [user_message("ten")])).await;
    assert_eq!(entry_ids(&read_all(store, &tape_name("elsewhere")).await), [10]);
    let names: Vec<_> = store.tapes().collect().await.unwrap().into_iter().map(|record| record.name).collect();
    assert_eq!(names, [tape_name("elsewhere"), tape_name("t")], "tapes are listed by name");
}

pub(super) async fn tape_without_a_session_gets_one_once(store: &dyn Store) {
    let tape = tape_name("t");
    let assign = |session: &str, workspace: &str| {
        let (session, workspace) = (Some(session.into()), Some(workspace.into()));
        single_fact_batch(Fact::EnsureTape(NewTape { session, workspace, ..NewTape::without_session(tape_name("t")) }))
    };
    let owner = async || {
        let record = store.tape(&tape).await.unwrap().unwrap();
        (record.session, record.workspace)
    };
    commit(store, create_tape_batch(&tape, [user_message("one")])).await;
    assert_eq!(owner().await, (None, None));
    commit(store, assign("s", "/w")).await;
    assert_eq!(owner().await, (Some("s".into()), Some("/w".into())));
    commit(store, assign("x", "/x")).await;
    commit(store, create_tape_batch(&tape, [user_message("two")])).await;
    assert_eq!(owner().await, (Some("s".into()), Some("/w".into())), "an assigned session does not change");
    assert_eq!(entry_ids(&read_all(store, &tape).await), [1, 2]);
}

pub(super) async fn imported_entries_are_preserved(store: &dyn Store) {
    let tape = tape_name("t");
    let mut batch = single_fact_batch(ensure_tape(&tape));
    batch.push(Fact::ImportEntries { tape: tape.clone(), entries: unusual_entries() });
    commit(store, batch).await;
    let entries = read_all(store, &tape).await;
    assert_eq!(entries, unusual_entries());
    let to_json = |entry: &capstan_tape::Entry| serde_json::to_string(entry).expect("an entry has a JSON form");
    assert_eq!(
        entries.iter().map(to_json).collect::<Vec<_>>(),
        unusual_entries().iter().map(to_json).collect::<Vec<_>>(),
        "the order of keys is preserved"
    );
    commit(store, append_batch(&tape, [user_message("ten")])).await;
    assert_eq!(entry_ids(&read_all(store, &tape).await), [2, 7, 8, 9, 10]);
    let brought_along = async || store.tape(&tape).await.unwrap().unwrap().brought_along;
    assert_eq!(brought_along().await, EntryId(9), "ids up to the last imported entry may have gaps");
    commit(
        store,
        single_fact_batch(Fact::ImportEntries { tape: tape.clone(), entries: vec![entry(11, "event", json!({}))] }),
    )
    .await;
    assert_eq!(brought_along().await, EntryId(9), "an imported entry that follows the head makes no gap");
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(super) async fn p14_large_payloads_are_preserved(store: &dyn Store) {
    let (tape, other) = (tape_name("t"), tape_name("other"));
    let text = "你好 \\ \"🐋\" \n".repeat(60_000);
    let large = |id, kind| entry(id, kind, json!({"z": [&text, 0.1], "name": "a", "b": {"deep": null}}));
    let entries = [large(1, "message"), entry(2, "message", json!("small")), large(3, "anchor"), large(4, "odd")];
    for tape in [&tape, &other] {
        let mut batch = single_fact_batch(ensure_tape(tape));
        batch.push(Fact::ImportEntries { tape: tape.clone(), entries: entries.to_vec() });
        commit(store, batch).await;
    }
    assert!(read_all(store, &tape).await == entries, "large and small payloads are unchanged");
    assert!(store.read(&tape, &TapeSlice::last_anchor()).await.unwrap() == entries[2..3]);
    commit(store, single_fact_batch(Fact::MarkReplicated { tape: tape.clone(), up_to: EntryId(3) })).await;
    assert!(read_all(store, &tape).await == entries[3..]);
    assert!(read_all(store, &other).await == entries, "another tape still has its payloads");
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(super) async fn data_nested_too_deep_to_be_read_back_is_rejected(store: &dyn Store) {
    let tape = tape_name("t");
    let nested = |depth| (0..depth).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
    commit(store, create_tape_batch(&tape, [EntryDraft::event("deep", nested(119))])).await;
    let error = store.commit(append_batch(&tape, [EntryDraft::event("too deep", nested(120))])).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NestedTooDeep);
    let state =
        |depth| single_fact_batch(Fact::PutState { tape: tape_name("t"), key: "k".into(), value: nested(depth) });
    commit(store, state(120)).await;
    assert!(store.commit(state(121)).await.is_err());
    assert_eq!(entry_texts(&read_all(store, &tape).await), ["deep"]);
    assert_eq!(store.state(&tape).await.unwrap()["k"], nested(120));
}

pub(super) async fn imported_ids_must_increase(store: &dyn Store) {
    let tape = tape_name("t");
    commit(store, create_tape_batch(&tape, [user_message("one"), user_message("two")])).await;
    let event = |id| entry(id, "event", serde_json::json!({}));
    for (entries, id, head) in [
        (vec![event(2)], 2, 2),
        (vec![event(5), event(5)], 5, 5),
        (vec![event(5), event(4)], 4, 5),
        (vec![event(u64::MAX)], u64::MAX, 2),
    ] {
        let rejected = store.commit(single_fact_batch(Fact::ImportEntries { tape: tape.clone(), entries })).await;
        assert_eq!(rejected, Err(StoreError::OutOfOrder { tape: tape.clone(), id, head }));
    }
    let unknown =
        store.commit(single_fact_batch(Fact::ImportEntries { tape: tape_name("x"), entries: vec![event(1)] })).await;
    assert_eq!(unknown, Err(StoreError::TapeNotFound { tape: tape_name("x") }));
    assert_eq!(entry_ids(&read_all(store, &tape).await), [1, 2]);
}

pub(super) async fn replicated_entries_are_removed(store: &dyn Store) {
    let (tape, other) = (tape_name("t"), tape_name("u"));
    commit(store, create_tape_batch(&tape, [user_message("one"), user_message("two"), user_message("three")])).await;
    commit(store, create_tape_batch(&other, [user_message("unaffected")])).await;
    commit(store, single_fact_batch(Fact::MarkReplicated { tape: tape.clone(), up_to: EntryId(2) })).await;
    assert_eq!(entry_ids(&read_all(store, &tape).await), [3]);
    let record = store.tape(&tape).await.unwrap().unwrap();
    assert_eq!((record.head, record.replicated_up_to), (EntryId(3), EntryId(2)));
    commit(store, single_fact_batch(Fact::MarkReplicated { tape: tape.clone(), up_to: EntryId(1) })).await;
    assert_eq!(store.tape(&tape).await.unwrap().unwrap().replicated_up_to, EntryId(2), "the mark does not move back");
    commit(store, append_batch(&tape, [user_message("four")])).await;
    assert_eq!(entry_ids(&read_all(store, &tape).await), [3, 4]);
    assert_eq!(entry_texts(&read_all(store, &other).await), ["unaffected"]);
    let unknown =
        store.commit(single_fact_batch(Fact::MarkReplicated { tape: tape_name("x"), up_to: EntryId(1) })).await;
    assert_eq!(unknown, Err(StoreError::TapeNotFound { tape: tape_name("x") }));
}

pub(super) async fn fork_has_a_parent_and_a_position(store: &dyn Store) {
    let (tape, fork) = (tape_name("t"), tape_name("f"));
    commit(store, create_tape_batch(&tape, [user_message("one"), user_message("two"), user_message("three")])).await;
    commit(store, single_fact_batch(Fact::ResetTape { tape: tape.clone(), archive: false })).await;
    commit(store, append_batch(&tape, [user_message("four"), user_message("five")])).await;
    let make = |fork, position| Fact::ForkTape { fork, parent: tape.clone(), position: EntryId(position) };
    commit(store, single_fact_batch(make(fork.clone(), 4))).await;
    let record = store.tape(&fork).await.unwrap().unwrap();
    assert_eq!((record.head, record.begins_after), (EntryId(4), EntryId(3)));
    let point = ForkPoint { parent: tape.clone(), position: EntryId(4), state: ForkState::Open };
    assert_eq!(record.fork, Some(point.clone()));
    commit(store, append_batch(&fork, [user_message("on the fork")])).await;
    assert_eq!(entry_ids(&read_all(store, &fork).await), [5], "only its own rows");

    let again = store.commit(single_fact_batch(make(fork.clone(), 4))).await;
    assert_eq!(again, Err(StoreError::TapeExists { tape: fork.clone() }));
    let orphan = Fact::ForkTape { fork: tape_name("o"), parent: tape_name("x"), position: EntryId(1) };
    assert_eq!(store.commit(single_fact_batch(orphan)).await, Err(StoreError::TapeNotFound { tape: tape_name("x") }));

    let close = |tape| single_fact_batch(Fact::CloseFork { fork: tape, is_merged: true });
    commit(store, close(fork.clone())).await;
    assert_eq!(store.tape(&fork).await.unwrap().unwrap().fork.unwrap().state, ForkState::Merged);
    let closed = Err(StoreError::ForkClosed { tape: fork.clone() });
    assert_eq!(store.commit(append_batch(&fork, [user_message("late")])).await, closed);
    assert_eq!(store.commit(close(fork.clone())).await, closed);
    assert_eq!(store.commit(close(tape.clone())).await, Err(StoreError::TapeNotFound { tape: tape.clone() }));
}

pub(super) async fn reset_begins_a_generation(store: &dyn Store) {
    let tape = tape_name("t");
    commit(store, create_tape_batch(&tape, [user_message("one"), user_message("two")])).await;
    commit(store, single_fact_batch(Fact::ResetTape { tape: tape.clone(), archive: true })).await;
    commit(store, append_batch(&tape, [user_message("three")])).await;
    commit(store, single_fact_batch(Fact::ResetTape { tape: tape.clone(), archive: false })).await;
    let record = store.tape(&tape).await.unwrap().unwrap();
    assert_eq!((record.generation, record.begins_after, record.head), (3, EntryId(3), EntryId(3)));
    let first = TapeGeneration { number: 1, begins_after: EntryId(0), up_to: EntryId(2), archived: true };
    let second = TapeGeneration { number: 2, begins_after: EntryId(2), up_to: EntryId(3), archived: false };
    assert_eq!(record.past_generations, [first, second]);
    assert_eq!(entry_ids(&read_all(store, &tape).await), [1, 2, 3], "a reset deletes nothing");
    let unknown = store.commit(single_fact_batch(Fact::ResetTape { tape: tape_name("x"), archive: false })).await;
    assert_eq!(unknown, Err(StoreError::TapeNotFound { tape: tape_name("x") }));
}

pub(super) async fn expected_head_is_compared(store: &dyn Store) {
    let tape = tape_name("t");
    let expecting = |head, batch: Batch| {
        let head = BatchPrecondition::TapeHead { tape: tape_name("t"), head: EntryId(head) };
        Batch { preconditions: vec![head], ..batch }
    };
    let moved = Err(StoreError::HeadMoved { tape: tape.clone() });
    assert_eq!(store.commit(expecting(1, create_tape_batch(&tape, [user_message("one")]))).await, moved);
    commit(store, expecting(0, create_tape_batch(&tape, [user_message("one")]))).await;
    assert_eq!(store.commit(expecting(0, append_batch(&tape, [user_message("two")]))).await, moved);
    commit(store, expecting(1, append_batch(&tape, [user_message("two")]))).await;
    assert_eq!(entry_ids(&read_all(store, &tape).await), [1, 2]);
}

pub(super) async fn intact_store_has_no_integrity_problems(store: &dyn Store) {
    let (tape, fork) = (tape_name("t"), tape_name("f"));
    commit(store, create_tape_batch(&tape, [user_message("one"), user_message("two")])).await;
    commit(store, single_fact_batch(Fact::ForkTape { fork: fork.clone(), parent: tape.clone(), position: EntryId(1) }))
        .await;
    commit(store, append_batch(&fork, [user_message("on the fork")])).await;
    commit(store, single_fact_batch(Fact::MarkReplicated { tape: tape.clone(), up_to: EntryId(1) })).await;
    let entry = EntryRef::Id(EntryId(2));
    commit(
        store,
        single_fact_batch(Fact::AcceptEvent {
            key: event_key("e"),
            session: "s".into(),
            tape: tape.clone(),
            entry,
            accepted_at: timestamp(1),
            owner: "p".into(),
        }),
    )
    .await;
    assert_eq!(store.verify().await.unwrap(), []);
    assert_eq!(entry_ids(&store.read(&tape, &TapeSlice::last()).await.unwrap()), [2]);
}
