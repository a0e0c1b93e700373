//! Forks of tapes.

use capstan_protocol::EntryId;
use capstan_tape::{Slice, StoreError, Tapes};

use super::fixture::{anchor, begin, call, ids, in_batch, more, name, result, seen, user, write};

pub(super) async fn p09_a_fork_sees_its_parent_and_keeps_its_writes(tapes: &Tapes) {
    let (tape, fork, inner) = (name("t"), name("f"), name("g"));
    write(tapes, begin(&tape, [user("one"), user("two")])).await;
    tapes.fork(&tape, &fork, None).await.unwrap();
    write(tapes, more(&fork, [user("f1")])).await;
    write(tapes, more(&tape, [user("three")])).await;
    tapes.fork(&fork, &inner, None).await.unwrap();
    write(tapes, more(&inner, [user("g1")])).await;
    assert_eq!(seen(tapes, &tape).await, ["one", "two", "three"]);
    assert_eq!(seen(tapes, &fork).await, ["one", "two", "f1"]);
    assert_eq!(seen(tapes, &inner).await, ["one", "two", "f1", "g1"]);
    let newest = Slice { limit: Some(3), ..Slice::last() };
    assert_eq!(ids(&tapes.read(&inner, &newest).await.unwrap()), [4, 3, 2]);
    let middle = Slice { up_to: Some(EntryId(3)), ..Slice::after(EntryId(1)) };
    assert_eq!(ids(&tapes.read(&inner, &middle).await.unwrap()), [2, 3]);
    let exists = Err(StoreError::TapeExists { tape: fork.clone() });
    assert_eq!(tapes.fork(&tape, &fork, None).await, exists);
    assert_eq!(tapes.fork(&name("x"), &name("y"), None).await, Err(StoreError::NoTape { tape: name("x") }));
}

pub(super) async fn p09_a_merged_fork_joins_under_new_ids(tapes: &Tapes) {
    let (tape, fork) = (name("t"), name("f"));
    write(tapes, begin(&tape, [user("one"), user("two")])).await;
    tapes.fork(&tape, &fork, None).await.unwrap();
    let mut inside = more(&fork, [user("f1"), call("c"), result("c")]);
    let names = vec![capstan_tape::EntryRef::Id(EntryId(2)), in_batch(0)];
    inside.append(&fork, anchor("inside").naming(names));
    write(tapes, inside).await;
    write(tapes, more(&tape, [user("three"), user("four")])).await;
    tapes.merge(&fork).await.unwrap();
    assert_eq!(seen(tapes, &tape).await, ["one", "two", "three", "four", "f1", "tool_call", "tool_result", "inside"]);
    let merged = tapes.read(&tape, &Slice::all()).await.unwrap();
    assert_eq!(ids(&merged), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(merged[7].named_messages(), [EntryId(2), EntryId(5)], "the fork's entry 3 is the parent's entry 5");
    let window = tapes.window(&tape).await.unwrap();
    assert_eq!(super::fixture::said(&window.named), ["two", "f1"]);
    let closed = Err(StoreError::ForkClosed { tape: fork.clone() });
    assert_eq!(tapes.merge(&fork).await, closed);
    assert!(tapes.commit(more(&fork, [user("late")])).await.is_err());
    assert_eq!(tapes.merge(&tape).await, Err(StoreError::NoTape { tape: tape.clone() }), "it is no fork");
}

pub(super) async fn p09_a_merge_waits_for_an_open_call(tapes: &Tapes) {
    let (tape, fork) = (name("t"), name("f"));
    write(tapes, begin(&tape, [user("one"), call("c")])).await;
    tapes.fork(&tape, &fork, None).await.unwrap();
    write(tapes, more(&fork, [user("f1")])).await;
    assert_eq!(tapes.merge(&fork).await, Err(StoreError::OpenCall { tape: tape.clone() }));
    write(tapes, more(&tape, [result("c")])).await;
    tapes.merge(&fork).await.unwrap();
    assert_eq!(seen(tapes, &tape).await, ["one", "tool_call", "tool_result", "f1"]);
}

pub(super) async fn p09_a_discarded_fork_goes_nowhere(tapes: &Tapes) {
    let (tape, fork) = (name("t"), name("f"));
    write(tapes, begin(&tape, [user("one")])).await;
    tapes.fork(&tape, &fork, None).await.unwrap();
    write(tapes, more(&fork, [user("f1")])).await;
    tapes.discard(&fork).await.unwrap();
    assert_eq!(seen(tapes, &tape).await, ["one"]);
    assert_eq!(seen(tapes, &fork).await, ["one", "f1"], "it stays readable");
    assert_eq!(tapes.discard(&fork).await, Err(StoreError::ForkClosed { tape: fork.clone() }));
}

pub(super) async fn p09_a_fork_at_an_entry_sees_no_further(tapes: &Tapes) {
    let (tape, fork, whole) = (name("t"), name("f"), name("w"));
    write(tapes, begin(&tape, [anchor("a"), user("one"), anchor("b"), user("two")])).await;
    tapes.fork(&tape, &fork, Some(EntryId(2))).await.unwrap();
    write(tapes, more(&fork, [user("f1")])).await;
    assert_eq!(seen(tapes, &fork).await, ["a", "one", "f1"]);
    let window = tapes.window(&fork).await.unwrap();
    assert_eq!(window.anchor.unwrap().name(), Some("a"));
    tapes.fork(&tape, &whole, Some(EntryId(99))).await.unwrap();
    assert_eq!(seen(tapes, &whole).await, ["a", "one", "b", "two"], "a place beyond the end is the end");
}

pub(super) async fn p09_a_fork_of_a_past_generation_sees_that_one(tapes: &Tapes) {
    let (tape, fork) = (name("t"), name("f"));
    write(tapes, begin(&tape, [user("one"), user("two")])).await;
    tapes.reset(&tape, false).await.unwrap();
    write(tapes, more(&tape, [user("new")])).await;
    tapes.fork(&tape, &fork, Some(EntryId(1))).await.unwrap();
    write(tapes, more(&fork, [user("f1")])).await;
    assert_eq!(seen(tapes, &fork).await, ["one", "f1"]);
}
