use serde_json::{Value, json};

use super::{tool_violations, violations};

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn calls<const N: usize>(ids: [&str; N]) -> Value {
    let calls: Vec<Value> = ids
        .iter()
        .map(|id| json!({"id": id, "type": "function", "function": {"name": "bash", "arguments": "{}"}}))
        .collect();
    json!({"role": "assistant", "content": "", "tool_calls": calls})
}

fn tool_message(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "ok"})
}

#[track_caller]
fn assert_one_violation(messages: &[Value], part: &str) {
    let violations_found = violations(messages);
    assert!(
        violations_found.len() == 1 && violations_found[0].contains(part),
        "expected one violation about {part:?}, found {violations_found:?}"
    );
}

#[test]
fn conversation_with_answered_calls_and_a_leading_anchor_is_valid() {
    let messages = [
        json!({"role": "system", "content": "be brief"}),
        assistant("[Anchor created: session/start]: {\"owner\":\"human\"}"),
        user("go"),
        calls(["a", "b"]),
        tool_message("b"),
        tool_message("a"),
        user("continue"),
        calls(["c"]),
        tool_message("c"),
    ];
    assert_eq!(violations(&messages), Vec::<String>::new());
}

#[test]
fn consecutive_messages_of_one_role_are_valid() {
    assert_eq!(violations(&[user("a"), user("b"), assistant("c"), assistant("d"), user("e")]), Vec::<String>::new());
}

#[test]
fn request_without_messages_is_a_violation() {
    assert_one_violation(&[], "no messages");
}

#[test]
fn call_must_be_answered_before_the_end() {
    assert_one_violation(&[user("go"), calls(["a", "b"]), tool_message("a")], "\"b\" has no answer before the end");
}

#[test]
fn call_must_be_answered_before_any_other_message() {
    assert_one_violation(&[user("go"), calls(["a"]), user("and?")], "\"a\" has no answer before message 2 (user)");
}

#[test]
fn late_answer_is_a_violation() {
    let violations_found = violations(&[user("go"), calls(["a"]), user("and?"), tool_message("a")]);
    assert_eq!(violations_found.len(), 2, "{violations_found:?}");
    assert!(violations_found[1].contains("not an open call"));
}

#[test]
fn answer_without_a_call_is_a_violation() {
    assert_one_violation(&[user("go"), tool_message("a")], "not an open call");
}

#[test]
fn second_answer_is_a_violation() {
    assert_one_violation(&[user("go"), calls(["a"]), tool_message("a"), tool_message("a")], "not an open call");
}

#[test]
fn call_id_is_unique_in_a_conversation() {
    let again = [user("go"), calls(["a"]), tool_message("a"), calls(["a"]), tool_message("a")];
    assert_one_violation(&again, "\"a\" again");
}

#[test]
fn user_message_precedes_any_call() {
    assert_one_violation(&[calls(["a"]), tool_message("a")], "before any user message");
}

#[test]
fn last_message_is_of_a_user_or_a_tool() {
    assert_one_violation(&[user("hi"), assistant("hello")], "the last message");
}

#[test]
fn roles_are_known_and_user_messages_have_content() {
    assert_one_violation(&[json!({"role": "robot", "content": "x"}), user("hi")], "unknown role \"robot\"");
    assert_one_violation(&[user("")], "no content");
    assert_one_violation(&[json!({"role": "user", "content": []})], "no content");
}

#[test]
fn assistant_message_has_content_or_calls() {
    assert_one_violation(
        &[user("a"), json!({"role": "assistant", "content": null}), user("b")],
        "neither content nor calls",
    );
    let no_calls = json!({"role": "assistant", "content": "x", "tool_calls": []});
    assert_one_violation(&[user("a"), no_calls, user("b")], "not a list of calls");
}

#[test]
fn malformed_calls_are_violations() {
    let call = |id: &str, name: &str, arguments: Value| {
        json!({"role": "assistant", "content": "", "tool_calls": [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        ]})
    };
    assert_one_violation(
        &[user("a"), call("x", "fs.read", json!("{}")), tool_message("x")],
        "name providers do not accept",
    );
    assert_one_violation(
        &[user("a"), call("x", "bash", json!({})), tool_message("x")],
        "arguments that are not a string",
    );
    assert_one_violation(&[user("a"), call("", "bash", json!("{}")), tool_message("")], "without an id");
}

#[test]
fn tools_have_unique_names_that_providers_accept() {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    assert_eq!(tool_violations(&[tool("bash"), tool("fs_read")]), Vec::<String>::new());
    assert_eq!(tool_violations(&[tool("fs.read")]).len(), 1);
    assert_eq!(tool_violations(&[tool("bash"), tool("bash")]).len(), 1);
    assert_eq!(tool_violations(&[json!({"type": "function", "function": {"name": "x", "parameters": {}}})]).len(), 1);
}
