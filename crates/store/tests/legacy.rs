//! Export for the system the format comes from.

mod support;

use capstan_protocol::EntryId;
use capstan_store::jsonl::{legacy, read_file};
use capstan_tape::conversation::INTERRUPTED;
use capstan_tape::{Entry, keys};
use serde_json::{Value, json};
use support::{entry, ids, message, sample};

fn calls(id: u64, names: &[&str]) -> Entry {
    let call = |name: &&str| json!({"id": name, "type": "function", "function": {"name": "bash", "arguments": "{}"}});
    entry(id, "tool_call", json!({"calls": names.iter().map(call).collect::<Vec<_>>()}))
}

fn result(id: u64, call: &str) -> Entry {
    entry(id, "tool_result", json!({"results": [format!("of {call}")], "call_ids": [call]}))
}

fn results(entries: &[Entry]) -> Vec<&Value> {
    entries.iter().filter(|entry| entry.kind.as_str() == "tool_result").map(|entry| &entry.payload).collect()
}

#[test]
fn p12_the_results_of_a_step_are_joined_in_the_order_of_its_calls() {
    let joined = legacy(&[calls(1, &["a", "b"]), result(2, "b"), result(3, "a"), message(4, "next")]);
    assert_eq!(ids(&joined), [1, 2, 4]);
    assert_eq!(joined[1].payload, json!({"results": ["of a", "of b"]}));
}

#[test]
fn p12_a_joined_result_stands_right_after_its_call_and_ids_still_increase() {
    let mut anchor = entry(7, "anchor", json!({"name": "x", "state": {}}));
    anchor.meta.insert(keys::MESSAGES.into(), json!([2, 4]));
    let tape =
        [calls(1, &["a", "b"]), message(2, "steered"), result(3, "a"), message(4, "more"), result(5, "b"), anchor];
    let joined = legacy(&tape);
    let kinds: Vec<&str> = joined.iter().map(|entry| entry.kind.as_str()).collect();
    assert_eq!(kinds, ["tool_call", "tool_result", "message", "message", "anchor"]);
    assert_eq!(ids(&joined), [1, 2, 3, 4, 7]);
    assert_eq!(joined[1].payload, json!({"results": ["of a", "of b"]}));
    assert_eq!(joined[4].named_messages(), [EntryId(3), EntryId(4)], "names follow the messages");
}

#[test]
fn p12_a_missing_result_keeps_its_place_and_a_stray_one_is_left_out() {
    let stray = legacy(&[calls(1, &["a", "b"]), result(2, "b"), result(3, "x"), result(4, "b")]);
    assert_eq!(results(&stray), [&json!({"results": [INTERRUPTED, "of b"]})]);
    let none = [calls(1, &["a"]), message(2, "next")];
    assert_eq!(legacy(&none), none, "nothing is made up for a step without a result");
    let reused = legacy(&[calls(1, &["a"]), result(2, "a"), calls(3, &["a"]), result(4, "a")]);
    assert_eq!(results(&reused).len(), 2, "each step has its own results");
}

#[test]
fn p12_a_tape_of_that_system_stays_as_it_is() {
    let entries = read_file(sample()).unwrap().entries;
    assert_eq!(legacy(&entries), entries);
}
