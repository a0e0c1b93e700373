//! `OpenAI` chat.

use serde_json::{Value, json};

use super::memory::Memory;
use super::rules::{Found, are_arguments, is_image, list, text as text_of};
use super::{data, fragments, words};
use crate::grammar;
use crate::reply::{Answer, Call};

/// The longest id of a call.
const LONGEST_ID: usize = 40;

pub(super) fn violations(body: &Value, memory: &Memory) -> Vec<String> {
    let mut wrong = Vec::new();
    if body["model"].as_str().unwrap_or_default().is_empty() {
        wrong.push("there is no model".to_owned());
    }
    if body["stream"] != true {
        wrong.push("it does not ask for a stream, and this server only streams".to_owned());
    }
    match body["messages"].as_array() {
        Some(messages) => {
            wrong.extend(grammar::violations(messages));
            let details = messages.iter().flat_map(|message| list(&message["reasoning_details"]));
            let is_known = |detail: &&Value| {
                memory.knows(text_of(&body["model"]), text_of(&detail["signature"]), text_of(&detail["text"]))
            };
            if details.into_iter().any(|detail| !is_known(&detail)) {
                wrong.push("the signature of reasoning is not that of this reasoning and model".to_owned());
            }
            wrong.extend(messages.iter().enumerate().flat_map(|(index, message)| refused(index, message)));
        }
        None => wrong.push("there is no list of messages".to_owned()),
    }
    match body.get("tools").map(Value::as_array) {
        None => {}
        Some(Some(tools)) if !tools.is_empty() => wrong.extend(grammar::tool_violations(tools)),
        Some(_) => wrong.push("tools is no list of tools".to_owned()),
    }
    wrong
}

/// What only the sender can see to: a conversation may have it.
fn refused(index: usize, message: &Value) -> Vec<String> {
    let mut found = Found::default();
    let wrong = |what: &str| format!("message {index}: {what}");
    for call in list(&message["tool_calls"]) {
        let short = text_of(&call["id"]).chars().count() <= LONGEST_ID;
        found.unless(short, || wrong("the id of a call is too long"));
        let fit = are_arguments(&call["function"]["arguments"]);
        found.unless(fit, || wrong("the arguments of a call are not the JSON of an object"));
    }
    let parts = if message["role"] == "user" { list(&message["content"]) } else { &[] };
    for part in parts {
        let kind = text_of(&part["type"]);
        let fits = match kind {
            "text" => part["text"].is_string(),
            "image_url" => is_image(text_of(&part["image_url"]["url"])),
            "input_audio" | "file" => part[kind].is_object(),
            _ => false,
        };
        found.unless(fits, || wrong(&format!("a part {kind:?} is not taken")));
    }
    found.0
}

pub(super) fn frames(request: &Value, answer: &Answer, memory: &mut Memory) -> Vec<String> {
    let mut frames = Vec::new();
    // Whoever asks in the words of OpenRouter is answered in them.
    if request.get("reasoning").is_some() && !answer.reasoning.is_empty() {
        frames.extend(words(&answer.reasoning).map(|word| delta(&json!({"reasoning": word}))));
        let signature = memory.sign(text_of(&request["model"]), &answer.reasoning);
        let detail = json!({"type": "reasoning.text", "text": answer.reasoning, "signature": signature, "index": 0});
        frames.push(delta(&json!({"reasoning_details": [detail]})));
    } else {
        frames.extend(words(&answer.reasoning).map(|word| delta(&json!({"reasoning_content": word}))));
    }
    frames.extend(words(&answer.text).map(text));
    frames.extend(answer.calls.iter().enumerate().flat_map(|(index, call)| call_frames(index, call)));
    frames.push(finish(match answer {
        Answer { truncated: true, .. } => "length",
        Answer { calls, .. } if !calls.is_empty() => "tool_calls",
        Answer { .. } => "stop",
    }));
    if request["stream_options"]["include_usage"] == true {
        let usage = answer.usage;
        let mut said = json!({
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt + usage.completion,
        });
        if usage.cached > 0 {
            said["prompt_tokens_details"] = json!({"cached_tokens": usage.cached});
        }
        frames.push(frame(&json!({"choices": [], "usage": said})));
    }
    frames.push("data: [DONE]\n\n".to_owned());
    frames
}

fn call_frames(index: usize, call: &Call) -> Vec<String> {
    let opening = json!({"tool_calls": [
        {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    ]});
    let fragments = fragments(&call.arguments)
        .into_iter()
        .map(|fragment| delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]})));
    std::iter::once(delta(&opening)).chain(fragments).collect()
}

pub(super) fn text(word: &str) -> String {
    delta(&json!({"content": word}))
}

pub(super) fn error(message: &str) -> String {
    data(&json!({"error": {"message": message, "type": "server_error", "code": null}}))
}

pub(super) fn overflow() -> (u16, Value) {
    let message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
    let error = json!({"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"});
    (400, json!({ "error": error }))
}

fn delta(delta: &Value) -> String {
    frame(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

fn finish(reason: &str) -> String {
    frame(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

fn frame(chunk: &Value) -> String {
    let mut whole = json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0});
    if let (Some(whole), Some(chunk)) = (whole.as_object_mut(), chunk.as_object()) {
        whole.extend(chunk.clone());
    }
    data(&whole)
}
