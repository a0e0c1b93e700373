//! `OpenAI` chat.

use serde_json::{Value, json};

use super::reply_ledger::ReplyLedger;
use super::rules::{ViolationList, array_items, is_arguments_object, is_image_url, str_or_empty as text_of};
use super::{split_arguments, split_words, sse_data};
use crate::grammar;
use crate::scripted_reply::{ScriptedCompletion, ScriptedToolCall};

/// The longest id of a call.
const MAX_CHAT_CALL_ID_LEN: usize = 40;

pub(super) fn violations(body: &Value, memory: &ReplyLedger) -> Vec<String> {
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
            let details = messages.iter().flat_map(|message| array_items(&message["reasoning_details"]));
            let is_known = |detail: &&Value| {
                memory.is_valid_signature(
                    text_of(&body["model"]),
                    text_of(&detail["signature"]),
                    text_of(&detail["text"]),
                )
            };
            if details.into_iter().any(|detail| !is_known(&detail)) {
                wrong.push("the signature of reasoning is not that of this reasoning and model".to_owned());
            }
            wrong.extend(messages.iter().enumerate().flat_map(|(index, message)| message_violations(index, message)));
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
fn message_violations(index: usize, message: &Value) -> Vec<String> {
    let mut found = ViolationList::default();
    let wrong = |what: &str| format!("message {index}: {what}");
    for call in array_items(&message["tool_calls"]) {
        let short = text_of(&call["id"]).chars().count() <= MAX_CHAT_CALL_ID_LEN;
        found.require(short, || wrong("the id of a call is too long"));
        let fit = is_arguments_object(&call["function"]["arguments"]);
        found.require(fit, || wrong("the arguments of a call are not the JSON of an object"));
    }
    let parts = if message["role"] == "user" { array_items(&message["content"]) } else { &[] };
    for part in parts {
        let kind = text_of(&part["type"]);
        let fits = match kind {
            "text" => part["text"].is_string(),
            "image_url" => is_image_url(text_of(&part["image_url"]["url"])),
            "input_audio" | "file" => part[kind].is_object(),
            _ => false,
        };
        found.require(fits, || wrong(&format!("a part {kind:?} is not taken")));
    }
    found.0
}

pub(super) fn frames(request: &Value, answer: &ScriptedCompletion, memory: &mut ReplyLedger) -> Vec<String> {
    let mut frames = Vec::new();
    // Whoever asks in the words of OpenRouter is answered in them.
    if request.get("reasoning").is_some() && !answer.reasoning.is_empty() {
        frames.extend(split_words(&answer.reasoning).map(|word| delta_frame(&json!({"reasoning": word}))));
        let signature = memory.sign(text_of(&request["model"]), &answer.reasoning);
        let detail = json!({"type": "reasoning.text", "text": answer.reasoning, "signature": signature, "index": 0});
        frames.push(delta_frame(&json!({"reasoning_details": [detail]})));
    } else {
        frames.extend(split_words(&answer.reasoning).map(|word| delta_frame(&json!({"reasoning_content": word}))));
    }
    frames.extend(split_words(&answer.text).map(text_frame));
    frames.extend(answer.calls.iter().enumerate().flat_map(|(index, call)| call_frames(index, call)));
    frames.push(finish_frame(match answer {
        ScriptedCompletion { is_truncated: true, .. } => "length",
        ScriptedCompletion { calls, .. } if !calls.is_empty() => "tool_calls",
        ScriptedCompletion { .. } => "stop",
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
        frames.push(chunk_frame(&json!({"choices": [], "usage": said})));
    }
    frames.push("data: [DONE]\n\n".to_owned());
    frames
}

fn call_frames(index: usize, call: &ScriptedToolCall) -> Vec<String> {
    let opening = json!({"tool_calls": [
        {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    ]});
    let fragments = split_arguments(&call.arguments)
        .into_iter()
        .map(|fragment| delta_frame(&json!({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]})));
    std::iter::once(delta_frame(&opening)).chain(fragments).collect()
}

pub(super) fn text_frame(word: &str) -> String {
    delta_frame(&json!({"content": word}))
}

pub(super) fn error_frame(message: &str) -> String {
    sse_data(&json!({"error": {"message": message, "type": "server_error", "code": null}}))
}

pub(super) fn overflow_response() -> (u16, Value) {
    let message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
    let error = json!({"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"});
    (400, json!({ "error": error }))
}

fn delta_frame(delta: &Value) -> String {
    chunk_frame(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

fn finish_frame(reason: &str) -> String {
    chunk_frame(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

fn chunk_frame(chunk: &Value) -> String {
    let mut whole = json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0});
    if let (Some(whole), Some(chunk)) = (whole.as_object_mut(), chunk.as_object()) {
        whole.extend(chunk.clone());
    }
    sse_data(&whole)
}
