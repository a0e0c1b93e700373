//! Google Gemini.

use serde_json::{Value, json};

use super::memory::Memory;
use super::rules::{Found, is_tool_name, list, text as text_of};
use super::{data, words};
use crate::reply::Answer;

/// What may stand in place of the signature of a call that another model made.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// Something a part says. Each has exactly one.
const SAYS: [&str; 5] = ["text", "inlineData", "fileData", "functionCall", "functionResponse"];

pub(super) fn violations(path: &str, body: &Value, memory: &Memory) -> Vec<String> {
    let mut found = Found::default();
    let known = ["contents", "systemInstruction", "tools", "generationConfig"];
    for key in body.as_object().into_iter().flat_map(|body| body.keys()) {
        found.unless(known.contains(&key.as_str()), || format!("the key {key:?} is not known"));
    }
    let declarations = list(&body["tools"]).iter().flat_map(|tool| list(&tool["functionDeclarations"]));
    found.tools(declarations.map(|tool| (&tool["name"], &tool["parametersJsonSchema"])));
    let contents = list(&body["contents"]);
    found.unless(!contents.is_empty(), || "there are no contents".to_owned());
    let signs = path.contains("gemini-3");
    let mut open: Vec<&Value> = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let expected = if index.is_multiple_of(2) { "user" } else { "model" };
        found.unless(content["role"] == expected, || format!("content {index} is not of role {expected}"));
        let parts = list(&content["parts"]);
        found.unless(!parts.is_empty(), || format!("content {index} has no parts"));
        let responses: Vec<&Value> = parts.iter().filter_map(|part| part.get("functionResponse")).collect();
        pair(&mut found, index, &open, &responses);
        open = parts.iter().filter_map(|part| part.get("functionCall")).collect();
        for part in parts {
            check(&mut found, index, expected, part);
            let signature = text_of(&part["thoughtSignature"]);
            let signed = text_of(&part["functionCall"]["name"]);
            let known = ["", NO_SIGNATURE].contains(&signature) || memory.knows(path, signature, signed);
            found.unless(known, || format!("content {index}: a thought_signature is not valid"));
        }
        let first_call = parts.iter().find(|part| part.get("functionCall").is_some());
        if let Some(call) = first_call.filter(|_| signs) {
            let is_signed = !text_of(&call["thoughtSignature"]).is_empty();
            found.unless(is_signed, || format!("content {index}: a function call is missing a thought_signature"));
        }
    }
    found.unless(open.is_empty(), || "the last function call has no response".to_owned());
    found.unless(contents.last().is_some_and(|last| last["role"] == "user"), || "the user is not last".to_owned());
    found.0
}

fn pair(found: &mut Found, index: usize, calls: &[&Value], responses: &[&Value]) {
    let (calls_made, given) = (calls.len(), responses.len());
    found.unless(calls_made == given, || format!("content {index} has {given} responses to {calls_made} calls"));
    for (call, response) in calls.iter().zip(responses) {
        let matches = call["name"] == response["name"] && call.get("id") == response.get("id");
        found.unless(matches, || format!("content {index}: a response is not that of its call"));
        found.unless(response["response"].is_object(), || format!("content {index}: a response is no object"));
    }
}

fn check(found: &mut Found, index: usize, role: &str, part: &Value) {
    let says = SAYS.iter().filter(|key| part.get(**key).is_some()).count();
    found.unless(says == 1, || format!("content {index}: a part says {says} things"));
    found.unless(part["text"] != "", || format!("content {index}: a text is empty"));
    if let Some(call) = part.get("functionCall") {
        let fits = role == "model" && is_tool_name(text_of(&call["name"])) && call["args"].is_object();
        found.unless(fits, || format!("content {index}: a call is none"));
    }
    if let Some(image) = part.get("inlineData") {
        let fits = role == "user" && image["mimeType"].is_string() && image["data"].is_string();
        found.unless(fits, || format!("content {index}: an image is none"));
    }
}

/// The model is in the path alone.
pub(super) fn frames(path: &str, answer: &Answer, memory: &mut Memory) -> Vec<String> {
    let part = |part: Value| chunk(&json!([part]), None, None);
    let mut frames: Vec<String> =
        words(&answer.reasoning).map(|word| part(json!({"text": word, "thought": true}))).collect();
    frames.extend(words(&answer.text).map(text));
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
    frames.push(chunk(&last, Some(if answer.truncated { "MAX_TOKENS" } else { "STOP" }), Some(&used)));
    frames
}

pub(super) fn text(word: &str) -> String {
    chunk(&json!([{ "text": word }]), None, None)
}

fn chunk(parts: &Value, reason: Option<&str>, usage: Option<&Value>) -> String {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(reason) = reason {
        candidate["finishReason"] = json!(reason);
    }
    let mut chunk = json!({"candidates": [candidate], "modelVersion": "scripted"});
    if let Some(usage) = usage {
        chunk["usageMetadata"] = usage.clone();
    }
    data(&chunk)
}

pub(super) fn error(message: &str) -> String {
    data(&json!({"error": {"code": 500, "message": message, "status": "INTERNAL"}}))
}

pub(super) fn overflow() -> (u16, Value) {
    let message = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
    (400, json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}))
}
