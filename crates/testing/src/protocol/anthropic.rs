//! Anthropic Messages.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::memory::Memory;
use super::rules::{Found, is_image_kind, is_tool_name, list, text as text_of};
use super::{event, fragments, silent_event, words};
use crate::reply::Answer;

const MOST_MARKS: usize = 4;

pub(super) fn violations(body: &Value, memory: &Memory) -> Vec<String> {
    let mut found = Found::default();
    found.text(body, "model");
    found.stream(body);
    let limit = body["max_tokens"].as_u64().unwrap_or_default();
    found.unless(limit > 0, || "there is no max_tokens".to_owned());
    found.tools(list(&body["tools"]).iter().map(|tool| (&tool["name"], &tool["input_schema"])));
    let budget = body["thinking"]["budget_tokens"].as_u64();
    found.unless(budget.is_none_or(|budget| budget >= 1024 && budget < limit), || "the budget does not fit".to_owned());
    let messages = list(&body["messages"]);
    found.unless(!messages.is_empty(), || "there are no messages".to_owned());
    let mut reader = Reader { found, memory, model: text_of(&body["model"]), ids: HashSet::new(), open: Vec::new() };
    for (index, message) in messages.iter().enumerate() {
        reader.read(index, message);
    }
    let mut found = reader.finish(messages, body.get("thinking").is_some());
    let marks = body.to_string().matches("cache_control").count();
    found.unless(marks <= MOST_MARKS, || {
        format!("{marks} blocks are marked for the cache, and only {MOST_MARKS} may be")
    });
    found.0
}

struct Reader<'a> {
    found: Found,
    memory: &'a Memory,
    model: &'a str,
    ids: HashSet<&'a str>,
    open: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, index: usize, message: &'a Value) {
        let role = text_of(&message["role"]);
        let expected = if index.is_multiple_of(2) { "user" } else { "assistant" };
        self.found.unless(role == expected, || format!("message {index} is of role {role:?}, not {expected}"));
        let blocks = list(&message["content"]);
        self.found.unless(!blocks.is_empty(), || format!("message {index} has no content"));
        let open = std::mem::take(&mut self.open);
        let results = blocks.iter().take_while(|block| block["type"] == "tool_result");
        let answered: Vec<&str> = results.map(|block| text_of(&block["tool_use_id"])).collect();
        for id in &open {
            let times = answered.iter().filter(|answered| *answered == id).count();
            self.found.unless(times == 1, || {
                format!("the call {id:?} is answered {times} times at the beginning of message {index}")
            });
        }
        for id in answered.iter().filter(|id| !open.contains(id)) {
            self.found.0.push(format!("message {index} answers {id:?}, which the message before does not call"));
        }
        let late = blocks.iter().skip(answered.len()).any(|block| block["type"] == "tool_result");
        self.found.unless(!late, || format!("message {index} has a result after something else"));
        for block in blocks {
            self.read_block(index, role, block);
        }
    }

    fn read_block(&mut self, index: usize, role: &str, block: &'a Value) {
        let wrong = |what: &str| format!("message {index}: {what}");
        match (role, text_of(&block["type"])) {
            (_, "text") => {
                let words = text_of(&block["text"]);
                self.found.unless(!words.trim().is_empty(), || wrong("a text is empty"));
            }
            ("user", "image") => {
                let source = &block["source"];
                let inline = !text_of(&source["data"]).is_empty() && is_image_kind(text_of(&source["media_type"]));
                let fits = inline || text_of(&source["url"]).starts_with("http");
                self.found.unless(fits, || wrong("an image has no source that is taken"));
            }
            ("user", "tool_result") => {}
            ("assistant", "thinking") => {
                let known = self.memory.knows(self.model, text_of(&block["signature"]), text_of(&block["thinking"]));
                self.found.unless(known, || wrong("the signature of a thought is not that of this thought and model"));
                self.found.unless(block.get("cache_control").is_none(), || wrong("a thought is marked for the cache"));
            }
            ("assistant", "tool_use") => {
                let id = text_of(&block["id"]);
                self.found.unless(is_tool_name(id), || wrong("a call has an id that is not taken"));
                self.found.unless(self.ids.insert(id), || wrong("the id of a call is used again"));
                self.found
                    .unless(is_tool_name(text_of(&block["name"])), || wrong("a call has a name that is not taken"));
                self.found.unless(block["input"].is_object(), || wrong("the input of a call is no object"));
                self.open.push(id);
            }
            (role, kind) => self.found.0.push(wrong(&format!("a block {kind:?} of {role:?}"))),
        }
    }

    fn finish(mut self, messages: &[Value], thinks: bool) -> Found {
        let ends_well = messages.last().is_some_and(|last| last["role"] == "user");
        self.found.unless(ends_well, || "the last message is not one of the user".to_owned());
        let answers = messages.last().is_some_and(|last| last["content"][0]["type"] == "tool_result");
        let before = messages.iter().rev().find(|message| message["role"] == "assistant");
        if let Some(before) = before.filter(|_| thinks && answers) {
            let first = text_of(&before["content"][0]["type"]);
            let what = || format!("with thinking, a step begins with a thought, and this one begins with {first:?}");
            self.found.unless(first == "thinking", what);
        }
        self.found
    }
}

pub(super) fn frames(request: &Value, answer: &Answer, memory: &mut Memory) -> Vec<String> {
    let usage = answer.usage;
    let mut frames =
        vec![start(usage.prompt - usage.cached, usage.cached), silent_event("ping", &json!({"type": "ping"}))];
    let mut blocks: Vec<(Value, Vec<Value>)> = Vec::new();
    if !answer.reasoning.is_empty() {
        let mut deltas: Vec<Value> =
            words(&answer.reasoning).map(|word| json!({"type": "thinking_delta", "thinking": word})).collect();
        deltas.push(
            json!({"type": "signature_delta", "signature": memory.sign(text_of(&request["model"]), &answer.reasoning)}),
        );
        blocks.push((json!({"type": "thinking", "thinking": "", "signature": ""}), deltas));
    }
    if !answer.text.is_empty() {
        let deltas = words(&answer.text).map(|word| json!({"type": "text_delta", "text": word})).collect();
        blocks.push((json!({"type": "text", "text": ""}), deltas));
    }
    for call in &answer.calls {
        let fragments = fragments(&call.arguments).into_iter();
        let deltas = fragments.map(|part| json!({"type": "input_json_delta", "partial_json": part})).collect();
        blocks.push((json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}), deltas));
    }
    for (index, (block, deltas)) in blocks.into_iter().enumerate() {
        frames.push(begin(index, &block));
        frames.extend(deltas.into_iter().map(|delta| go_on(index, &delta)));
        let stop = json!({"type": "content_block_stop", "index": index});
        frames.push(silent_event("content_block_stop", &stop));
    }
    let reason = match answer {
        Answer { truncated: true, .. } => "max_tokens",
        Answer { calls, .. } if !calls.is_empty() => "tool_use",
        Answer { .. } => "end_turn",
    };
    let end = json!({
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": usage.completion},
    });
    frames.push(event("message_delta", &end));
    frames.push(event("message_stop", &json!({"type": "message_stop"})));
    frames
}

fn start(input: u64, cached: u64) -> String {
    let usage = json!({
        "input_tokens": input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": 1,
    });
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage});
    silent_event("message_start", &json!({"type": "message_start", "message": message}))
}

fn begin(index: usize, block: &Value) -> String {
    let data = json!({"type": "content_block_start", "index": index, "content_block": block});
    silent_event("content_block_start", &data)
}

fn go_on(index: usize, delta: &Value) -> String {
    event("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

pub(super) fn half<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut frames = vec![start(10, 0), begin(0, &json!({"type": "text", "text": ""}))];
    frames.extend(words.map(|word| go_on(0, &json!({"type": "text_delta", "text": word}))));
    frames
}

pub(super) fn error(message: &str) -> String {
    event("error", &json!({"type": "error", "error": {"type": "api_error", "message": message}}))
}

pub(super) fn overflow() -> (u16, Value) {
    let message = "prompt is too long: 210000 tokens > 200000 maximum";
    (400, json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}}))
}
