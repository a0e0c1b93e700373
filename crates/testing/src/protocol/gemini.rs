//! Google Gemini.

use serde_json::{Value, json};

use super::reply_ledger::ReplyLedger;
use super::rules::{ViolationList, array_items, is_valid_tool_name, str_or_empty as text_of};
use super::{split_words, sse_data};
use crate::scripted_reply::ScriptedCompletion;

/// Placeholder for the signature of a call that another model made.
const SIGNATURE_BYPASS: &str = "skip_thought_signature_validator";
/// Accepted media types of images.
const IMAGE_MIME_TYPES: [&str; 5] = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];
/// Content keys of a part, which has exactly one of them.
const PART_CONTENT_KEYS: [&str; 5] = ["text", "inlineData", "fileData", "functionCall", "functionResponse"];

pub(super) fn violations(path: &str, body: &Value, ledger: &ReplyLedger) -> Vec<String> {
    let mut violations = ViolationList::default();
    let known = ["contents", "systemInstruction", "tools", "generationConfig"];
    for key in body.as_object().into_iter().flat_map(|body| body.keys()) {
        violations.require(known.contains(&key.as_str()), || format!("unknown key {key:?}"));
    }
    let declarations = array_items(&body["tools"]).iter().flat_map(|tool| array_items(&tool["functionDeclarations"]));
    violations.check_tools(declarations.map(|tool| (&tool["name"], &tool["parametersJsonSchema"])));
    let contents = array_items(&body["contents"]);
    violations.require(!contents.is_empty(), || "there are no contents".to_owned());
    let needs_signature = path.contains("gemini-3");
    let mut open_calls: Vec<&Value> = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let expected = if index.is_multiple_of(2) { "user" } else { "model" };
        violations.require(content["role"] == expected, || format!("content {index} is not of role {expected}"));
        let parts = array_items(&content["parts"]);
        violations.require(!parts.is_empty(), || format!("content {index} has no parts"));
        let responses: Vec<&Value> = parts.iter().filter_map(|part| part.get("functionResponse")).collect();
        check_pairing(&mut violations, index, &open_calls, &responses);
        open_calls = parts.iter().filter_map(|part| part.get("functionCall")).collect();
        for part in parts {
            check_part(&mut violations, index, expected, part);
            let signature = text_of(&part["thoughtSignature"]);
            let signed = text_of(&part["functionCall"]["name"]);
            let known =
                ["", SIGNATURE_BYPASS].contains(&signature) || ledger.is_valid_signature(path, signature, signed);
            violations.require(known, || format!("content {index}: a thought_signature is not valid"));
        }
        let first_call = parts.iter().find(|part| part.get("functionCall").is_some());
        if let Some(call) = first_call.filter(|_| needs_signature) {
            let is_signed = !text_of(&call["thoughtSignature"]).is_empty();
            violations
                .require(is_signed, || format!("content {index}: a function call is missing a thought_signature"));
        }
    }
    violations.require(open_calls.is_empty(), || "the last function call has no response".to_owned());
    violations.require(contents.last().is_some_and(|last| last["role"] == "user"), || {
        "the last content is not of the user".to_owned()
    });
    violations.0
}

fn check_pairing(violations: &mut ViolationList, index: usize, calls: &[&Value], responses: &[&Value]) {
    let (call_count, response_count) = (calls.len(), responses.len());
    violations.require(call_count == response_count, || {
        format!("content {index} has {response_count} responses to {call_count} calls")
    });
    for (call, response) in calls.iter().zip(responses) {
        let matches = call["name"] == response["name"] && call.get("id") == response.get("id");
        violations.require(matches, || format!("content {index}: a response does not match its call"));
        violations
            .require(response["response"].is_object(), || format!("content {index}: a response is not an object"));
    }
}

fn check_part(violations: &mut ViolationList, index: usize, role: &str, part: &Value) {
    let key_count = PART_CONTENT_KEYS.iter().filter(|key| part.get(**key).is_some()).count();
    violations.require(key_count == 1, || format!("content {index}: a part has {key_count} content keys"));
    violations.require(part["text"] != "", || format!("content {index}: a text is empty"));
    if let Some(call) = part.get("functionCall") {
        let fits = role == "model" && is_valid_tool_name(text_of(&call["name"])) && call["args"].is_object();
        violations.require(fits, || format!("content {index}: a call is invalid"));
    }
    if let Some(image) = part.get("inlineData").or(part.get("fileData")) {
        let fits = role == "user" && IMAGE_MIME_TYPES.contains(&text_of(&image["mimeType"])) && image["data"] != "";
        violations.require(fits, || format!("content {index}: an image is invalid or of an unsupported type"));
    }
}

/// Renders a completion. The model is named only in the path.
pub(super) fn frames(path: &str, completion: &ScriptedCompletion, ledger: &mut ReplyLedger) -> Vec<String> {
    let part = |part: Value| chunk_frame(&json!([part]), None, None);
    let mut frames: Vec<String> =
        split_words(&completion.reasoning).map(|word| part(json!({"text": word, "thought": true}))).collect();
    frames.extend(split_words(&completion.text).map(text_frame));
    for (index, call) in completion.calls.iter().enumerate() {
        // Arguments are values in this protocol, so invalid JSON cannot be sent.
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        let mut call_part = json!({"functionCall": {"name": call.name, "args": arguments, "id": call.id}});
        if index == 0 {
            call_part["thoughtSignature"] = json!(ledger.sign(path, &call.name));
        }
        frames.push(part(call_part));
    }
    let usage = completion.usage;
    let mut usage_metadata = json!({
        "promptTokenCount": usage.prompt,
        "candidatesTokenCount": usage.completion,
        "totalTokenCount": usage.prompt + usage.completion,
    });
    if usage.cached > 0 {
        usage_metadata["cachedContentTokenCount"] = json!(usage.cached);
    }
    let last = if completion.calls.is_empty() {
        json!([{"text": "", "thoughtSignature": ledger.sign(path, "")}])
    } else {
        json!([{"text": ""}])
    };
    frames.push(chunk_frame(
        &last,
        Some(if completion.is_truncated { "MAX_TOKENS" } else { "STOP" }),
        Some(&usage_metadata),
    ));
    frames
}

pub(super) fn text_frame(word: &str) -> String {
    chunk_frame(&json!([{ "text": word }]), None, None)
}

fn chunk_frame(parts: &Value, reason: Option<&str>, usage: Option<&Value>) -> String {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(reason) = reason {
        candidate["finishReason"] = json!(reason);
    }
    let mut chunk = json!({"candidates": [candidate], "modelVersion": "scripted"});
    if let Some(usage) = usage {
        chunk["usageMetadata"] = usage.clone();
    }
    sse_data(&chunk)
}

pub(super) fn error_frame(message: &str) -> String {
    sse_data(&json!({"error": {"code": 500, "message": message, "status": "INTERNAL"}}))
}

pub(super) fn overflow_response() -> (u16, Value) {
    let message = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
    (400, json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}))
}
