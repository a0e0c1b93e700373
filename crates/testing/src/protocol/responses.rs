//! `OpenAI` Responses.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::memory::Memory;
use super::rules::{Found, are_arguments, is_image, is_tool_name, list, text as text_of};
use super::{event, fragments, silent_event, words};
use crate::reply::Answer;

/// The longest id of a call.
const LONGEST_ID: usize = 64;

pub(super) fn violations(body: &Value, memory: &Memory) -> Vec<String> {
    let mut found = Found::default();
    found.text(body, "model");
    found.stream(body);
    found.unless(body["store"] == false, || "it lets the provider keep the conversation".to_owned());
    found.tools(list(&body["tools"]).iter().map(|tool| (&tool["name"], &tool["parameters"])));
    let items = list(&body["input"]);
    found.unless(!items.is_empty(), || "there is no input".to_owned());
    let model = text_of(&body["model"]);
    let mut reader = Reader { found, memory, model, ids: HashSet::new(), open: Vec::new(), seen: HashSet::new() };
    for (index, item) in items.iter().enumerate() {
        reader.read(index, item, items.get(index + 1));
    }
    let Reader { mut found, open, .. } = reader;
    found.unless(open.is_empty(), || format!("no tool output was found for the function calls {open:?}"));
    let last = items.last().map(|last| (text_of(&last["type"]), text_of(&last["role"])));
    let ends_well = matches!(last, Some(("function_call_output", _) | (_, "user")));
    found.unless(ends_well, || "the last item is none of the user or a tool".to_owned());
    found.0
}

struct Reader<'a> {
    found: Found,
    memory: &'a Memory,
    model: &'a str,
    ids: HashSet<&'a str>,
    open: Vec<&'a str>,
    /// The ids of items so far.
    seen: HashSet<&'a str>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, index: usize, item: &'a Value, next: Option<&Value>) {
        let wrong = |what: &str| format!("input[{index}]: {what}");
        let id = text_of(&item["id"]);
        match text_of(&item["type"]) {
            "" | "message" => {
                let role = text_of(&item["role"]);
                self.found.unless(self.open.is_empty(), || wrong("a message comes between a call and its output"));
                let known = ["user", "assistant", "developer", "system"].contains(&role);
                self.found.unless(known, || wrong(&format!("the role {role:?} is not known")));
                let kind = if role == "assistant" { "output_text" } else { "input_" };
                let parts = list(&item["content"]);
                let fit = parts.iter().all(|part| text_of(&part["type"]).starts_with(kind));
                self.found.unless(fit, || wrong("a part does not fit the role"));
                self.found.unless(parts.iter().all(is_whole), || wrong("a part is not taken"));
                self.found.unless(!parts.is_empty() || item["content"].is_string(), || wrong("it has no content"));
            }
            "function_call" => {
                let call_id = text_of(&item["call_id"]);
                self.found.unless(!call_id.is_empty() && self.ids.insert(call_id), || {
                    wrong("its call_id is missing or used again")
                });
                self.found.unless(call_id.chars().count() <= LONGEST_ID, || wrong("its call_id is too long"));
                let fits = is_tool_name(text_of(&item["name"])) && are_arguments(&item["arguments"]);
                self.found.unless(fits, || wrong("it is no function call"));
                let need = self.memory.need(id);
                let has = need.is_none_or(|need| self.seen.contains(need));
                self.found.unless(has, || wrong("it was provided without its required reasoning item"));
                self.open.push(call_id);
            }
            "function_call_output" => {
                let call_id = text_of(&item["call_id"]);
                let position = self.open.iter().position(|open| *open == call_id);
                self.found.unless(position.is_some(), || wrong("it answers no open call"));
                if let Some(position) = position {
                    self.open.remove(position);
                }
                self.found
                    .unless(item["output"].is_string() || item["output"].is_array(), || wrong("it has no output"));
                self.found.unless(list(&item["output"]).iter().all(is_whole), || wrong("a part is not taken"));
            }
            "reasoning" => {
                let known = self.memory.knows(self.model, text_of(&item["encrypted_content"]), id);
                self.found.unless(known, || wrong("its encrypted content could not be verified"));
                let kind = next.map(|next| text_of(&next["type"])).unwrap_or_default();
                let followed = matches!(kind, "function_call" | "message" | "reasoning");
                self.found.unless(followed, || wrong("it comes without the item that must follow it"));
            }
            other => self.found.0.push(wrong(&format!("the type {other:?} is not known"))),
        }
        self.seen.insert(id);
    }
}

fn is_whole(part: &Value) -> bool {
    match text_of(&part["type"]) {
        "input_text" | "output_text" => part["text"].is_string(),
        "input_image" => is_image(text_of(&part["image_url"])),
        _ => false,
    }
}

pub(super) fn frames(request: &Value, answer: &Answer, memory: &mut Memory) -> Vec<String> {
    let mut frames = vec![begin()];
    let mut index = 0;
    let mut output = |frames: &mut Vec<String>, mut item: Value, deltas: Vec<String>| {
        frames
            .push(silent_event("response.output_item.added", &item_event("response.output_item.added", index, &item)));
        frames.extend(deltas);
        item["status"] = json!("completed");
        frames.push(silent_event("response.output_item.done", &item_event("response.output_item.done", index, &item)));
        index += 1;
    };
    let mut reasoning = None;
    if !answer.reasoning.is_empty() {
        let id = format!("rs_{:04}", memory.number());
        let summary = json!([{"type": "summary_text", "text": answer.reasoning}]);
        let encrypted = memory.sign(text_of(&request["model"]), &id);
        let item = json!({"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted});
        let kind = "response.reasoning_summary_text.delta";
        let deltas = words(&answer.reasoning).map(|word| event(kind, &json!({"type": kind, "delta": word})));
        output(&mut frames, item, deltas.collect());
        reasoning = Some(id);
    }
    if !answer.text.is_empty() {
        let content = json!([{"type": "output_text", "text": answer.text, "annotations": []}]);
        let id = format!("msg_{:04}", memory.number());
        let item = json!({"type": "message", "id": id, "role": "assistant", "content": content});
        output(&mut frames, item, words(&answer.text).map(text).collect());
    }
    for call in &answer.calls {
        let id = format!("fc_{:04}", memory.number());
        if let Some(reasoning) = &reasoning {
            memory.tie(&id, reasoning);
        }
        let (call_id, name, arguments) = (&call.id, &call.name, &call.arguments);
        let item = json!({"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments});
        let kind = "response.function_call_arguments.delta";
        let deltas =
            fragments(&call.arguments).into_iter().map(|part| event(kind, &json!({"type": kind, "delta": part})));
        output(&mut frames, item, deltas.collect());
    }
    let usage = answer.usage;
    let mut response = json!({"id": "resp_1", "status": "completed", "usage": {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }});
    let kind = if answer.truncated {
        response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        "response.incomplete"
    } else {
        "response.completed"
    };
    frames.push(event(kind, &json!({"type": kind, "response": response})));
    frames
}

fn begin() -> String {
    let response = json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}});
    silent_event("response.created", &response)
}

fn item_event(kind: &str, index: usize, item: &Value) -> Value {
    json!({"type": kind, "output_index": index, "item": item})
}

fn text(word: &str) -> String {
    let kind = "response.output_text.delta";
    event(kind, &json!({"type": kind, "delta": word}))
}

pub(super) fn half<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    std::iter::once(begin()).chain(words.map(text)).collect()
}

pub(super) fn error(message: &str) -> String {
    let error = json!({"code": "server_error", "message": message});
    let data = json!({"type": "response.failed", "response": {"status": "failed", "error": error}});
    event("response.failed", &data)
}

pub(super) fn overflow() -> (u16, Value) {
    let message = "Your input exceeds the context window of this model. Please adjust your input and try again.";
    let error = json!({"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"});
    (400, json!({ "error": error }))
}
