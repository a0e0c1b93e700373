//! Ollama's native protocol.

use serde_json::{Value, json};

use super::rules::{ViolationList, array_items, is_valid_tool_name, str_or_empty as text_of};
use super::split_words;
use crate::scripted_reply::ScriptedCompletion;

pub(super) fn violations(body: &Value) -> Vec<String> {
    let mut violations = ViolationList::default();
    violations.require_text(body, "model");
    violations.require_stream(body);
    violations.check_tools(
        array_items(&body["tools"]).iter().map(|tool| (&tool["function"]["name"], &tool["function"]["parameters"])),
    );
    let messages = array_items(&body["messages"]);
    violations.require(!messages.is_empty(), || "there are no messages".to_owned());
    let mut open_calls: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let at_message = |problem: &str| format!("message {index}: {problem}");
        let role = text_of(&message["role"]);
        violations.require(message["content"].is_string(), || at_message("its content is not text"));
        violations.require(role == "tool" || open_calls.is_empty(), || at_message("a call has no answer"));
        let are_inline = array_items(&message["images"])
            .iter()
            .all(|image| !text_of(image).is_empty() && !text_of(image).contains(':'));
        violations.require(are_inline, || at_message("an image is not in base64"));
        match role {
            "system" | "user" => {}
            "tool" => {
                let expected = if open_calls.is_empty() { None } else { Some(open_calls.remove(0)) };
                let answers = expected == Some(text_of(&message["tool_name"]));
                violations.require(answers, || at_message("it does not answer the next call"));
            }
            "assistant" => {
                for call in array_items(&message["tool_calls"]) {
                    let (name, arguments) = (&call["function"]["name"], &call["function"]["arguments"]);
                    let fits = is_valid_tool_name(text_of(name)) && arguments.is_object();
                    violations.require(fits, || at_message("a call is invalid, or its arguments are not an object"));
                    open_calls.push(text_of(name));
                }
            }
            other => violations.0.push(at_message(&format!("unknown role {other:?}"))),
        }
    }
    violations.require(open_calls.is_empty(), || "the last call has no answer".to_owned());
    violations.0
}

pub(super) fn frames(completion: &ScriptedCompletion) -> Vec<String> {
    let mut frames: Vec<String> = split_words(&completion.reasoning)
        .map(|word| message_frame(&json!({"content": "", "thinking": word})))
        .collect();
    frames.extend(split_words(&completion.text).map(text_frame));
    frames.extend(completion.calls.iter().map(|call| {
        // Arguments are values in this protocol, so invalid JSON cannot be sent.
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        let call = json!({"id": call.id, "function": {"name": call.name, "arguments": arguments}});
        message_frame(&json!({"content": "", "tool_calls": [call]}))
    }));
    let end = json!({
        "model": "scripted",
        "message": {"role": "assistant", "content": ""},
        "done": true,
        "done_reason": if completion.is_truncated { "length" } else { "stop" },
        "prompt_eval_count": completion.usage.prompt,
        "eval_count": completion.usage.completion,
    });
    frames.push(format!("{end}\n"));
    frames
}

pub(super) fn text_frame(word: &str) -> String {
    message_frame(&json!({ "content": word }))
}

fn message_frame(message: &Value) -> String {
    let mut full = json!({"role": "assistant"});
    if let (Some(full), Some(message)) = (full.as_object_mut(), message.as_object()) {
        full.extend(message.clone());
    }
    format!("{}\n", json!({"model": "scripted", "message": full, "done": false}))
}

pub(super) fn error_frame(message: &str) -> String {
    format!("{}\n", json!({ "error": message }))
}

pub(super) fn overflow_response() -> (u16, Value) {
    (400, json!({"error": "prompt too long; exceeded max context length by 12 tokens"}))
}
