//! Export of tapes for Bub.

use crate::support::{entry, ids, message, sample};
use capstan_protocol::EntryId;
use capstan_store::jsonl::{read_file, to_bub_format};
use capstan_tape::conversation::INTERRUPTED_RESULT;
use capstan_tape::{Entry, meta_keys};
use serde_json::{Value, json};

fn tool_call_entry(id: u64, names: &[&str]) -> Entry {
    let call = |name: &&str| json!({"id": name, "type": "function", "function": {"name": "bash", "arguments": "{}"}});
    entry(id, "tool_call", json!({"calls": names.iter().map(call).collect::<Vec<_>>()}))
}

fn tool_result_entry(id: u64, call: &str) -> Entry {
    entry(id, "tool_result", json!({"results": [format!("of {call}")], "call_ids": [call]}))
}

fn result_payloads(entries: &[Entry]) -> Vec<&Value> {
    entries.iter().filter(|entry| entry.kind.as_str() == "tool_result").map(|entry| &entry.payload).collect()
}

#[test]
fn p12_results_of_a_step_are_joined_in_the_order_of_its_calls() {
    let joined = to_bub_format(&[
        tool_call_entry(1, &["a", "b"]),
        tool_result_entry(2, "b"),
        tool_result_entry(3, "a"),
        message(4, "next"),
    ]);
    assert_eq!(ids(&joined), [1, 2, 4]);
    assert_eq!(joined[1].payload, json!({"results": ["of a", "of b"]}));
}

#[test]
fn p12_joined_result_directly_follows_its_call_and_ids_increase() {
    let mut anchor = entry(7, "anchor", json!({"name": "x", "state": {}}));
    anchor.meta.insert(meta_keys::MESSAGES.into(), json!([2, 4]));
    let tape = [
        tool_call_entry(1, &["a", "b"]),
        message(2, "steered"),
        tool_result_entry(3, "a"),
        message(4, "more"),
        tool_result_entry(5, "b"),
        anchor,
    ];
    let joined = to_bub_format(&tape);
    let kinds: Vec<&str> = joined.iter().map(|entry| entry.kind.as_str()).collect();
    assert_eq!(kinds, ["tool_call", "tool_result", "message", "message", "anchor"]);
    assert_eq!(ids(&joined), [1, 2, 3, 4, 7]);
    assert_eq!(joined[1].payload, json!({"results": ["of a", "of b"]}));
    assert_eq!(joined[4].named_messages(), [EntryId(3), EntryId(4)], "anchors name the new ids");
}

#[test]
fn p12_missing_result_gets_a_placeholder_and_a_stray_one_is_omitted() {
    let stray = to_bub_format(&[
        tool_call_entry(1, &["a", "b"]),
        tool_result_entry(2, "b"),
        tool_result_entry(3, "x"),
        tool_result_entry(4, "b"),
    ]);
    assert_eq!(result_payloads(&stray), [&json!({"results": [INTERRUPTED_RESULT, "of b"]})]);
    let none = [tool_call_entry(1, &["a"]), message(2, "next")];
    assert_eq!(to_bub_format(&none), none, "a step without a result is not changed");
    let reused = to_bub_format(&[
        tool_call_entry(1, &["a"]),
        tool_result_entry(2, "a"),
        tool_call_entry(3, &["a"]),
        tool_result_entry(4, "a"),
    ]);
    assert_eq!(result_payloads(&reused).len(), 2, "each step has its own results");
}

#[test]
fn p12_tape_of_bub_is_not_changed() {
    let entries = read_file(sample()).unwrap().entries;
    assert_eq!(to_bub_format(&entries), entries);
}
