//! `OpenAI` chat.

use serde_json::{Value, json};

use super::reply_ledger::ReplyLedger;
use super::rules::{ViolationList, array_items, is_arguments_object, is_image_url, str_or_empty as text_of};
use super::{split_arguments, split_words, sse_data};
use crate::grammar;
use crate::scripted_reply::{ScriptedCompletion, ScriptedToolCall};

/// Maximum length of a call id.
const MAX_CHAT_CALL_ID_LEN: usize = 40;

pub(super) fn violations(body: &Value, ledger: &ReplyLedger) -> Vec<String> {
    let mut violations = Vec::new();
    if body["model"].as_str().unwrap_or_default().is_empty() {
        violations.push("there is no model".to_owned());
    }
    if body["stream"] != true {
        violations.push("stream is not true, and this server only streams".to_owned());
    }
    match body["messages"].as_array() {
        Some(messages) => {
            violations.extend(grammar::violations(messages));
            let details = messages.iter().flat_map(|message| array_items(&message["reasoning_details"]));
            let is_known = |detail: &&Value| {
                ledger.is_valid_signature(
                    text_of(&body["model"]),
                    text_of(&detail["signature"]),
                    text_of(&detail["text"]),
                )
            };
            if details.into_iter().any(|detail| !is_known(&detail)) {
                violations.push("the signature of reasoning does not match its text and model".to_owned());
            }
            violations
                .extend(messages.iter().enumerate().flat_map(|(index, message)| message_violations(index, message)));
        }
        None => violations.push("messages is not a list".to_owned()),
    }
    match body.get("tools").map(Value::as_array) {
        None => {}
        Some(Some(tools)) if !tools.is_empty() => violations.extend(grammar::tool_violations(tools)),
        Some(_) => violations.push("tools is not a list of tools".to_owned()),
    }
    violations
}

/// Checks what only the sender can ensure; a stored conversation may break these rules.
fn message_violations(index: usize, message: &Value) -> Vec<String> {
    let mut violations = ViolationList::default();
    let at_message = |problem: &str| format!("message {index}: {problem}");
    for call in array_items(&message["tool_calls"]) {
        let is_short = text_of(&call["id"]).chars().count() <= MAX_CHAT_CALL_ID_LEN;
        violations.require(is_short, || at_message("the id of a call is too long"));
        let fits = is_arguments_object(&call["function"]["arguments"]);
        violations.require(fits, || at_message("the arguments of a call are not the JSON of an object"));
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
        violations.require(fits, || at_message(&format!("a part {kind:?} is not accepted")));
    }
    violations.0
}

pub(super) fn frames(request: &Value, completion: &ScriptedCompletion, ledger: &mut ReplyLedger) -> Vec<String> {
    let mut frames = Vec::new();
    // OpenRouter's request field gets OpenRouter's reply fields.
    if request.get("reasoning").is_some() && !completion.reasoning.is_empty() {
        frames.extend(split_words(&completion.reasoning).map(|word| delta_frame(&json!({"reasoning": word}))));
        let signature = ledger.sign(text_of(&request["model"]), &completion.reasoning);
        let detail =
            json!({"type": "reasoning.text", "text": completion.reasoning, "signature": signature, "index": 0});
        frames.push(delta_frame(&json!({"reasoning_details": [detail]})));
    } else {
        frames.extend(split_words(&completion.reasoning).map(|word| delta_frame(&json!({"reasoning_content": word}))));
    }
    frames.extend(split_words(&completion.text).map(text_frame));
    frames.extend(completion.calls.iter().enumerate().flat_map(|(index, call)| call_frames(index, call)));
    frames.push(finish_frame(match completion {
        ScriptedCompletion { is_truncated: true, .. } => "length",
        ScriptedCompletion { calls, .. } if !calls.is_empty() => "tool_calls",
        ScriptedCompletion { .. } => "stop",
    }));
    if request["stream_options"]["include_usage"] == true {
        let usage = completion.usage;
        let mut reported = json!({
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt + usage.completion,
        });
        if usage.cached > 0 {
            reported["prompt_tokens_details"] = json!({"cached_tokens": usage.cached});
        }
        frames.push(chunk_frame(&json!({"choices": [], "usage": reported})));
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
    let mut full = json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0});
    if let (Some(full), Some(chunk)) = (full.as_object_mut(), chunk.as_object()) {
        full.extend(chunk.clone());
    }
    sse_data(&full)
}
