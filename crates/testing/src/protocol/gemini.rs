//! Google Gemini.

use serde_json::{Value, json};

use super::reply_ledger::ReplyLedger;
use super::rules::{ViolationList, array_items, is_valid_tool_name, str_or_empty as text_of};
use super::{split_words, sse_data};
use crate::scripted_reply::ScriptedCompletion;

/// What may stand in place of the signature of a call that another model made.
const SIGNATURE_BYPASS: &str = "skip_thought_signature_validator";
/// The kinds of images it takes.
const IMAGE_MIME_TYPES: [&str; 5] = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];
/// Something a part says. Each has exactly one.
const PART_CONTENT_KEYS: [&str; 5] = ["text", "inlineData", "fileData", "functionCall", "functionResponse"];

pub(super) fn violations(path: &str, body: &Value, memory: &ReplyLedger) -> Vec<String> {
    let mut found = ViolationList::default();
    let known = ["contents", "systemInstruction", "tools", "generationConfig"];
    for key in body.as_object().into_iter().flat_map(|body| body.keys()) {
        found.require(known.contains(&key.as_str()), || format!("the key {key:?} is not known"));
    }
    let declarations = array_items(&body["tools"]).iter().flat_map(|tool| array_items(&tool["functionDeclarations"]));
    found.check_tools(declarations.map(|tool| (&tool["name"], &tool["parametersJsonSchema"])));
    let contents = array_items(&body["contents"]);
    found.require(!contents.is_empty(), || "there are no contents".to_owned());
    let signs = path.contains("gemini-3");
    let mut open: Vec<&Value> = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let expected = if index.is_multiple_of(2) { "user" } else { "model" };
        found.require(content["role"] == expected, || format!("content {index} is not of role {expected}"));
        let parts = array_items(&content["parts"]);
        found.require(!parts.is_empty(), || format!("content {index} has no parts"));
        let responses: Vec<&Value> = parts.iter().filter_map(|part| part.get("functionResponse")).collect();
        check_pairing(&mut found, index, &open, &responses);
        open = parts.iter().filter_map(|part| part.get("functionCall")).collect();
        for part in parts {
            check_part(&mut found, index, expected, part);
            let signature = text_of(&part["thoughtSignature"]);
            let signed = text_of(&part["functionCall"]["name"]);
            let known =
                ["", SIGNATURE_BYPASS].contains(&signature) || memory.is_valid_signature(path, signature, signed);
            found.require(known, || format!("content {index}: a thought_signature is not valid"));
        }
        let first_call = parts.iter().find(|part| part.get("functionCall").is_some());
        if let Some(call) = first_call.filter(|_| signs) {
            let is_signed = !text_of(&call["thoughtSignature"]).is_empty();
            found.require(is_signed, || format!("content {index}: a function call is missing a thought_signature"));
        }
    }
    found.require(open.is_empty(), || "the last function call has no response".to_owned());
    found.require(contents.last().is_some_and(|last| last["role"] == "user"), || "the user is not last".to_owned());
    found.0
}

fn check_pairing(found: &mut ViolationList, index: usize, calls: &[&Value], responses: &[&Value]) {
    let (calls_made, given) = (calls.len(), responses.len());
    found.require(calls_made == given, || format!("content {index} has {given} responses to {calls_made} calls"));
    for (call, response) in calls.iter().zip(responses) {
        let matches = call["name"] == response["name"] && call.get("id") == response.get("id");
        found.require(matches, || format!("content {index}: a response is not that of its call"));
        found.require(response["response"].is_object(), || format!("content {index}: a response is no object"));
    }
}

fn check_part(found: &mut ViolationList, index: usize, role: &str, part: &Value) {
    let says = PART_CONTENT_KEYS.iter().filter(|key| part.get(**key).is_some()).count();
    found.require(says == 1, || format!("content {index}: a part says {says} things"));
    found.require(part["text"] != "", || format!("content {index}: a text is empty"));
    if let Some(call) = part.get("functionCall") {
        let fits = role == "model" && is_valid_tool_name(text_of(&call["name"])) && call["args"].is_object();
        found.require(fits, || format!("content {index}: a call is none"));
    }
    if let Some(image) = part.get("inlineData").or(part.get("fileData")) {
        let fits = role == "user" && IMAGE_MIME_TYPES.contains(&text_of(&image["mimeType"])) && image["data"] != "";
        found.require(fits, || format!("content {index}: an image is none, or of a kind that is not taken"));
    }
}

/// The model is in the path alone.
pub(super) fn frames(path: &str, answer: &ScriptedCompletion, memory: &mut ReplyLedger) -> Vec<String> {
    let part = |part: Value| chunk_frame(&json!([part]), None, None);
    let mut frames: Vec<String> =
        split_words(&answer.reasoning).map(|word| part(json!({"text": word, "thought": true}))).collect();
    frames.extend(split_words(&answer.text).map(text_frame));
    for (index, call) in answer.calls.iter().enumerate() {
        // The arguments of this protocol are values: a script that wants others cannot have them here.
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        let mut made = json!({"functionCall": {"name": call.name, "args": arguments, "id": call.id}});
        if index == 0 {
            made["thoughtSignature"] = json!(memory.sign(path, &call.name));
        }
        frames.push(part(made));
    }
    let usage = answer.usage;
    let mut used = json!({
        "promptTokenCount": usage.prompt,
        "candidatesTokenCount": usage.completion,
        "totalTokenCount": usage.prompt + usage.completion,
    });
    if usage.cached > 0 {
        used["cachedContentTokenCount"] = json!(usage.cached);
    }
    let last = if answer.calls.is_empty() {
        json!([{"text": "", "thoughtSignature": memory.sign(path, "")}])
    } else {
        json!([{"text": ""}])
    };
    frames.push(chunk_frame(&last, Some(if answer.is_truncated { "MAX_TOKENS" } else { "STOP" }), Some(&used)));
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
