//! Ollama's own protocol.

use serde_json::{Value, json};

use super::rules::{ViolationList, array_items, is_valid_tool_name, str_or_empty as text_of};
use super::split_words;
use crate::scripted_reply::ScriptedCompletion;

pub(super) fn violations(body: &Value) -> Vec<String> {
    let mut found = ViolationList::default();
    found.require_text(body, "model");
    found.require_stream(body);
    found.check_tools(
        array_items(&body["tools"]).iter().map(|tool| (&tool["function"]["name"], &tool["function"]["parameters"])),
    );
    let messages = array_items(&body["messages"]);
    found.require(!messages.is_empty(), || "there are no messages".to_owned());
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let wrong = |what: &str| format!("message {index}: {what}");
        let role = text_of(&message["role"]);
        found.require(message["content"].is_string(), || wrong("its content is no text"));
        found.require(role == "tool" || open.is_empty(), || wrong("a call has no answer"));
        let images = array_items(&message["images"])
            .iter()
            .all(|image| !text_of(image).is_empty() && !text_of(image).contains(':'));
        found.require(images, || wrong("an image is not in base64"));
        match role {
            "system" | "user" => {}
            "tool" => {
                let expected = if open.is_empty() { None } else { Some(open.remove(0)) };
                let answers = expected == Some(text_of(&message["tool_name"]));
                found.require(answers, || wrong("it does not answer the next call"));
            }
            "assistant" => {
                for call in array_items(&message["tool_calls"]) {
                    let (name, arguments) = (&call["function"]["name"], &call["function"]["arguments"]);
                    let fits = is_valid_tool_name(text_of(name)) && arguments.is_object();
                    found.require(fits, || wrong("a call is none, or its arguments are no object"));
                    open.push(text_of(name));
                }
            }
            other => found.0.push(wrong(&format!("the role {other:?} is not known"))),
        }
    }
    found.require(open.is_empty(), || "the last call has no answer".to_owned());
    found.0
}

pub(super) fn frames(answer: &ScriptedCompletion) -> Vec<String> {
    let mut frames: Vec<String> =
        split_words(&answer.reasoning).map(|word| message_frame(&json!({"content": "", "thinking": word}))).collect();
    frames.extend(split_words(&answer.text).map(text_frame));
    frames.extend(answer.calls.iter().map(|call| {
        // The arguments of this protocol are values: a script that wants others cannot have them here.
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        let call = json!({"id": call.id, "function": {"name": call.name, "arguments": arguments}});
        message_frame(&json!({"content": "", "tool_calls": [call]}))
    }));
    let end = json!({
        "model": "scripted",
        "message": {"role": "assistant", "content": ""},
        "done": true,
        "done_reason": if answer.is_truncated { "length" } else { "stop" },
        "prompt_eval_count": answer.usage.prompt,
        "eval_count": answer.usage.completion,
    });
    frames.push(format!("{end}\n"));
    frames
}

pub(super) fn text_frame(word: &str) -> String {
    message_frame(&json!({ "content": word }))
}

fn message_frame(message: &Value) -> String {
    let mut said = json!({"role": "assistant"});
    if let (Some(said), Some(message)) = (said.as_object_mut(), message.as_object()) {
        said.extend(message.clone());
    }
    format!("{}\n", json!({"model": "scripted", "message": said, "done": false}))
}

pub(super) fn error_frame(message: &str) -> String {
    format!("{}\n", json!({ "error": message }))
}

pub(super) fn overflow_response() -> (u16, Value) {
    (400, json!({"error": "prompt too long; exceeded max context length by 12 tokens"}))
}
