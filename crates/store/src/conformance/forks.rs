//! Forks of tapes.

use capstan_protocol::{EntryId, Outcome};
use capstan_tape::{Batch, Fact, StoreError, TapeRepository, TapeSlice, fork_session};

use super::fixture::{
    anchor, append_batch, batch_entry, commit_to_tapes, create_tape_batch, entry_ids, event_key, read_texts, tape_name,
    timestamp, tool_call, tool_result, user_message,
};

pub(super) async fn p09_fork_sees_its_parent_and_its_own_writes(tapes: &TapeRepository) {
    let (tape, fork, inner) = (tape_name("t"), tape_name("f"), tape_name("g"));
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("one"), user_message("two")])).await;
    tapes.fork(&tape, &fork, None).await.unwrap();
    commit_to_tapes(tapes, append_batch(&fork, [user_message("f1")])).await;
    commit_to_tapes(tapes, append_batch(&tape, [user_message("three")])).await;
    tapes.fork(&fork, &inner, None).await.unwrap();
    commit_to_tapes(tapes, append_batch(&inner, [user_message("g1")])).await;
    assert_eq!(read_texts(tapes, &tape).await, ["one", "two", "three"]);
    assert_eq!(read_texts(tapes, &fork).await, ["one", "two", "f1"]);
    assert_eq!(read_texts(tapes, &inner).await, ["one", "two", "f1", "g1"]);
    let newest = TapeSlice { limit: Some(3), ..TapeSlice::last() };
    assert_eq!(entry_ids(&tapes.read(&inner, &newest).await.unwrap()), [4, 3, 2]);
    let middle = TapeSlice { up_to: Some(EntryId(3)), ..TapeSlice::after(EntryId(1)) };
    assert_eq!(entry_ids(&tapes.read(&inner, &middle).await.unwrap()), [2, 3]);
    let exists = Err(StoreError::TapeExists { tape: fork.clone() });
    assert_eq!(tapes.fork(&tape, &fork, None).await, exists);
    assert_eq!(
        tapes.fork(&tape_name("x"), &tape_name("y"), None).await,
        Err(StoreError::TapeNotFound { tape: tape_name("x") })
    );
}

pub(super) async fn p09_merged_entries_get_new_ids(tapes: &TapeRepository) {
    let (tape, fork) = (tape_name("t"), tape_name("f"));
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("one"), user_message("two")])).await;
    tapes.fork(&tape, &fork, None).await.unwrap();
    let mut inside = append_batch(&fork, [user_message("f1"), tool_call("c"), tool_result("c")]);
    let names = vec![capstan_tape::EntryRef::Id(EntryId(2)), batch_entry(0)];
    inside.append(&fork, anchor("inside").with_named_messages(names));
    commit_to_tapes(tapes, inside).await;
    commit_to_tapes(tapes, append_batch(&tape, [user_message("three"), user_message("four")])).await;
    tapes.merge(&fork).await.unwrap();
    assert_eq!(
        read_texts(tapes, &tape).await,
        ["one", "two", "three", "four", "f1", "tool_call", "tool_result", "inside"]
    );
    let merged = tapes.read(&tape, &TapeSlice::all()).await.unwrap();
    assert_eq!(entry_ids(&merged), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(merged[7].named_messages(), [EntryId(2), EntryId(5)], "the fork's entry 3 is the parent's entry 5");
    let window = tapes.window(&tape).await.unwrap();
    assert_eq!(super::fixture::entry_texts(&window.named_messages), ["two", "f1"]);
    let closed = Err(StoreError::ForkClosed { tape: fork.clone() });
    assert_eq!(tapes.merge(&fork).await, closed);
    assert!(tapes.commit(append_batch(&fork, [user_message("late")])).await.is_err());
    assert_eq!(
        tapes.merge(&tape).await,
        Err(StoreError::TapeNotFound { tape: tape.clone() }),
        "the tape is not a fork"
    );
}

pub(super) async fn p09_merge_is_rejected_while_a_tool_call_is_open(tapes: &TapeRepository) {
    let (tape, fork) = (tape_name("t"), tape_name("f"));
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("one"), tool_call("c")])).await;
    tapes.fork(&tape, &fork, None).await.unwrap();
    commit_to_tapes(tapes, append_batch(&fork, [user_message("f1")])).await;
    assert_eq!(tapes.merge(&fork).await, Err(StoreError::OpenToolCall { tape: tape.clone() }));
    commit_to_tapes(tapes, append_batch(&tape, [tool_result("c")])).await;
    tapes.merge(&fork).await.unwrap();
    assert_eq!(read_texts(tapes, &tape).await, ["one", "tool_call", "tool_result", "f1"]);
}

pub(super) async fn p09_discarded_fork_does_not_change_its_parent(tapes: &TapeRepository) {
    let (tape, fork) = (tape_name("t"), tape_name("f"));
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("one")])).await;
    tapes.fork(&tape, &fork, None).await.unwrap();
    commit_to_tapes(tapes, append_batch(&fork, [user_message("f1")])).await;
    tapes.discard(&fork).await.unwrap();
    assert_eq!(read_texts(tapes, &tape).await, ["one"]);
    assert_eq!(read_texts(tapes, &fork).await, ["one", "f1"], "a discarded fork stays readable");
    assert_eq!(tapes.discard(&fork).await, Err(StoreError::ForkClosed { tape: fork.clone() }));
}

pub(super) async fn p09_fork_with_an_event_in_flight_is_not_closed(tapes: &TapeRepository) {
    let (tape, fork) = (tape_name("t"), tape_name("f"));
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("one")])).await;
    tapes.fork(&tape, &fork, None).await.unwrap();
    let key = event_key("e");
    let mut accepted = Batch::new();
    let entry = accepted.append(&fork, user_message("f1"));
    accepted.push(Fact::AcceptEvent {
        key: key.clone(),
        session: fork_session(&fork),
        tape: fork.clone(),
        entry,
        accepted_at: timestamp(1),
        owner: "a".into(),
    });
    commit_to_tapes(tapes, accepted).await;
    let busy = StoreError::EventInFlight { tape: fork.clone() };
    assert_eq!(tapes.merge(&fork).await, Err(busy.clone()), "its turn could not be recorded");
    assert_eq!(tapes.discard(&fork).await, Err(busy));
    let mut settled = Batch::new();
    settled.push(Fact::SettleEvent { key, outcome: Outcome::Silent, run_id: None });
    commit_to_tapes(tapes, settled).await;
    assert_eq!(tapes.merge(&fork).await, Ok(1));
    assert_eq!(read_texts(tapes, &tape).await, ["one", "f1"]);
    assert!(tapes.is_merged_into(&fork, &tape).await.unwrap());
}

pub(super) async fn p09_fork_at_an_entry_sees_no_later_entries(tapes: &TapeRepository) {
    let (tape, fork, whole) = (tape_name("t"), tape_name("f"), tape_name("w"));
    commit_to_tapes(
        tapes,
        create_tape_batch(&tape, [anchor("a"), user_message("one"), anchor("b"), user_message("two")]),
    )
    .await;
    tapes.fork(&tape, &fork, Some(EntryId(2))).await.unwrap();
    commit_to_tapes(tapes, append_batch(&fork, [user_message("f1")])).await;
    assert_eq!(read_texts(tapes, &fork).await, ["a", "one", "f1"]);
    let window = tapes.window(&fork).await.unwrap();
    assert_eq!(window.anchor.unwrap().name(), Some("a"));
    tapes.fork(&tape, &whole, Some(EntryId(99))).await.unwrap();
    assert_eq!(read_texts(tapes, &whole).await, ["a", "one", "b", "two"], "a position beyond the end is the end");
}

pub(super) async fn p09_fork_of_a_past_generation_sees_that_generation(tapes: &TapeRepository) {
    let (tape, fork) = (tape_name("t"), tape_name("f"));
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("one"), user_message("two")])).await;
    tapes.reset(&tape, false).await.unwrap();
    commit_to_tapes(tapes, append_batch(&tape, [user_message("new")])).await;
    tapes.fork(&tape, &fork, Some(EntryId(1))).await.unwrap();
    commit_to_tapes(tapes, append_batch(&fork, [user_message("f1")])).await;
    assert_eq!(read_texts(tapes, &fork).await, ["one", "f1"]);
}
