//! Model of the trials: its reply depends only on the conversation, so that a repeated call gets the same reply.
//!
//! A message requests tool calls with `[TOOL KEY]`, all of them in one step; a call that was interrupted is repeated,
//! an answered one is not.

use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

/// Marker of a message that the model refuses to answer.
pub const FAIL_MARKER: &str = "[fail]";

pub fn start() -> ScriptedModel {
    ScriptedModel::start_blocking_with(|request, _| reply_to(request["messages"].as_array().expect("messages")))
}

fn reply_to(messages: &[Value]) -> ScriptedReply {
    let is_task = |message: &Value| message["role"] == "user" && !message_text(message).starts_with("Continue");
    let task = messages.iter().rposition(is_task).expect("a task");
    let (task, since) = (message_text(&messages[task]), &messages[task + 1..]);
    if task.contains(FAIL_MARKER) {
        return ScriptedReply::status(400, json!({"error": {"message": "I will not."}}).to_string());
    }
    let has_handed_off = since.iter().any(|message| message_text(message).starts_with("Continue: the handoff"));
    let is_answered = |key: &str| {
        let result =
            |message: &&Value| message["role"] == "tool" && is_result_of(message, key) && !is_interrupted(message);
        has_handed_off || since.iter().any(|message| result(&message))
    };
    let open_tasks: Vec<(&str, &str)> = parse_tasks(task).into_iter().filter(|(_, key)| !is_answered(key)).collect();
    if open_tasks.is_empty() {
        return ScriptedReply::text(format!("I read: {task}"));
    }
    let call = |(tool, key): (&str, &str)| match tool {
        "handoff" => (call_id(key, messages), "tape_handoff".to_owned(), json!({"name": key})),
        tool => (call_id(key, messages), tool.to_owned(), json!({"key": key})),
    };
    ScriptedReply::tool_calls(open_tasks.into_iter().map(call))
}

fn message_text(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

fn parse_tasks(text: &str) -> Vec<(&str, &str)> {
    text.split('[').filter_map(|text| text.split_once(']')?.0.split_once(' ')).collect()
}

/// Creates an id that is unique in the conversation and contains the key.
fn call_id(key: &str, messages: &[Value]) -> String {
    format!("{key}.{}", messages.len())
}

fn is_result_of(result: &Value, key: &str) -> bool {
    result["tool_call_id"].as_str().and_then(|id| id.split_once('.')).is_some_and(|(of, _)| of == key)
}

fn is_interrupted(result: &Value) -> bool {
    message_text(result).contains("interrupted")
}
