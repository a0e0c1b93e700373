//! Random tapes, as left by crashes, cancellation, steering and other systems.

use capstan_protocol::{ChatMessage, JsonObject, ToolCall};
use capstan_tape::{EntryDraft, EntryKind, EntryRef};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Change of a tape.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "a test holds few of them")]
pub enum TapeStep {
    /// Append an entry.
    Append(EntryDraft),
    /// Append an anchor that carries over some of the newest entries, counted from the end.
    Anchor(Vec<usize>),
    /// Fork the tape some entries before its head, and continue on the fork.
    Fork(usize),
    /// Merge the fork, unless a call of the parent is open.
    Merge,
    /// Discard the fork.
    Discard,
    /// Start a new generation.
    Reset,
}

/// Ids from a small set, so that they are repeated, and an empty one.
fn call_id() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[abc]", 1 => Just(String::new()), 1 => Just("a_2".to_owned())]
}

fn tool_call() -> impl Strategy<Value = ToolCall> {
    (call_id(), prop_oneof![8 => Just("bash"), 1 => Just("")]).prop_map(|(id, name)| ToolCall::new(id, name, "{}"))
}

fn message() -> impl Strategy<Value = ChatMessage> {
    let text = prop_oneof![5 => Just("text"), 1 => Just("")];
    prop_oneof![
        4 => text.clone().prop_map(ChatMessage::user),
        4 => text.clone().prop_map(ChatMessage::assistant),
        1 => (text.clone(), prop::collection::vec(tool_call(), 1..3)).prop_map(|(text, tool_calls)| {
            ChatMessage { tool_calls, ..ChatMessage::assistant(text) }
        }),
        1 => (call_id(), text).prop_map(|(id, text)| ChatMessage::tool_result(id, "bash", text)),
    ]
}

/// Unusual messages of other systems.
fn odd_message() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"role": "developer", "content": "be brief"})),
        Just(json!({"role": "system", "content": "be brief"})),
        Just(json!({"role": "assistant", "content": null})),
        Just(json!({"role": "user", "content": {"an": "object"}})),
        Just(json!({"role": "user", "content": [{"type": "text", "text": "a part"}]})),
        Just(json!({"role": "user", "content": []})),
        Just(json!({"role": "critic", "content": "hm"})),
        Just(json!("not even an object")),
        Just(
            json!({"role": "user", "content": "x", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}}]})
        ),
    ]
}

/// Results with and without ids, for open, unknown and answered calls.
fn results() -> impl Strategy<Value = Value> {
    let with_ids = prop::collection::vec(call_id(), 1..3).prop_map(|ids| {
        let results: Vec<String> = ids.iter().map(|id| format!("of {id}")).collect();
        json!({"results": results, "call_ids": ids})
    });
    let positional =
        prop::collection::vec(prop_oneof![Just(json!("plain")), Just(json!({"ok": true})), Just(json!(null))], 0..4)
            .prop_map(|results| json!({ "results": results }));
    prop_oneof![3 => with_ids, 2 => positional, 1 => Just(json!({"results": ["x", "y"], "call_ids": ["a"]})), 1 => Just(json!(3))]
}

fn odd_calls() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"calls": []})),
        Just(json!({"calls": "none"})),
        Just(json!({"calls": [{"function": {"name": "bash", "arguments": {"an": "object"}}}]})),
        Just(json!({"calls": [{"id": "a", "function": {"name": "bash"}}, {"id": "a"}]})),
    ]
}

fn draft() -> impl Strategy<Value = EntryDraft> {
    let plain = prop_oneof![
        6 => message().prop_map(|message| EntryDraft::message(&message)),
        1 => odd_message().prop_map(|payload| EntryDraft::new(EntryKind::Message, payload)),
        5 => prop::collection::vec(tool_call(), 1..4).prop_map(|calls| EntryDraft::tool_call(&calls)),
        1 => odd_calls().prop_map(|payload| EntryDraft::new(EntryKind::ToolCall, payload)),
        6 => results().prop_map(|payload| EntryDraft::new(EntryKind::ToolResult, payload)),
        1 => Just(EntryDraft::event("loop.step", json!({"step": 1}))),
        1 => Just(EntryDraft::error("model", "it failed")),
        1 => Just(EntryDraft::new(EntryKind::System, json!({"content": "prompt"}))),
        1 => Just(EntryDraft::new(EntryKind::from("bub.custom"), json!({"any": "thing"}))),
    ];
    (plain, prop::bool::weighted(0.1)).prop_map(|(draft, is_hidden)| if is_hidden { draft.hidden() } else { draft })
}

/// Complete step: its calls, then all results in random order.
fn whole_step() -> impl Strategy<Value = Vec<TapeStep>> {
    let ids = prop::sample::subsequence(vec!["a", "b", "c"], 1..=3);
    ids.prop_flat_map(|ids| (Just(ids.clone()), Just(ids).prop_shuffle())).prop_map(|(called, answered)| {
        let calls: Vec<ToolCall> = called.iter().map(|id| ToolCall::new(*id, "bash", "{}")).collect();
        let results = answered.iter().map(|id| super::result(id, "done"));
        std::iter::once(EntryDraft::tool_call(&calls)).chain(results).map(TapeStep::Append).collect()
    })
}

fn steps() -> impl Strategy<Value = Vec<TapeStep>> {
    prop_oneof![
        12 => draft().prop_map(|draft| vec![TapeStep::Append(draft)]),
        3 => whole_step(),
        1 => prop::collection::vec(0..6_usize, 0..4).prop_map(|names| vec![TapeStep::Anchor(names)]),
        1 => (0..4_usize).prop_map(|back| vec![TapeStep::Fork(back)]),
        1 => Just(vec![TapeStep::Merge]),
        1 => Just(vec![TapeStep::Discard]),
        1 => Just(vec![TapeStep::Reset]),
    ]
}

/// Sequence of changes of a tape.
pub fn history() -> impl Strategy<Value = Vec<TapeStep>> {
    prop::collection::vec(steps(), 0..25).prop_map(|steps| steps.into_iter().flatten().collect())
}

/// Anchor that carries over entries of a tape.
pub fn anchor(names: Vec<EntryRef>) -> EntryDraft {
    EntryDraft::anchor("handoff", &JsonObject::new()).with_named_messages(names)
}
