//! Anthropic Messages.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::reply_ledger::ReplyLedger;
use super::rules::{ViolationList, array_items, is_image_mime_type, is_valid_tool_name, str_or_empty as text_of};
use super::{leading_sse_event, split_arguments, split_words, sse_event};
use crate::scripted_reply::ScriptedCompletion;

const MAX_CACHE_BREAKPOINTS: usize = 4;

pub(super) fn violations(body: &Value, ledger: &ReplyLedger) -> Vec<String> {
    let mut violations = ViolationList::default();
    violations.require_text(body, "model");
    violations.require_stream(body);
    let limit = body["max_tokens"].as_u64().unwrap_or_default();
    violations.require(limit > 0, || "there is no max_tokens".to_owned());
    violations.check_tools(array_items(&body["tools"]).iter().map(|tool| (&tool["name"], &tool["input_schema"])));
    let budget = body["thinking"]["budget_tokens"].as_u64();
    violations.require(budget.is_none_or(|budget| budget >= 1024 && budget < limit), || {
        "budget_tokens is out of range".to_owned()
    });
    let messages = array_items(&body["messages"]);
    violations.require(!messages.is_empty(), || "there are no messages".to_owned());
    let mut validator = AnthropicValidator {
        violations,
        ledger,
        model: text_of(&body["model"]),
        call_ids: HashSet::new(),
        open_calls: Vec::new(),
    };
    for (index, message) in messages.iter().enumerate() {
        validator.check_message(index, message);
    }
    let mut violations = validator.finish(messages, body.get("thinking").is_some());
    let breakpoints = body.to_string().matches("cache_control").count();
    violations.require(breakpoints <= MAX_CACHE_BREAKPOINTS, || {
        format!("{breakpoints} blocks have cache_control, more than {MAX_CACHE_BREAKPOINTS}")
    });
    violations.0
}

struct AnthropicValidator<'a> {
    violations: ViolationList,
    ledger: &'a ReplyLedger,
    model: &'a str,
    call_ids: HashSet<&'a str>,
    open_calls: Vec<&'a str>,
}

impl<'a> AnthropicValidator<'a> {
    fn check_message(&mut self, index: usize, message: &'a Value) {
        let role = text_of(&message["role"]);
        let expected = if index.is_multiple_of(2) { "user" } else { "assistant" };
        self.violations.require(role == expected, || format!("message {index} is of role {role:?}, not {expected}"));
        let blocks = array_items(&message["content"]);
        self.violations.require(!blocks.is_empty(), || format!("message {index} has no content"));
        let open = std::mem::take(&mut self.open_calls);
        let results = blocks.iter().take_while(|block| block["type"] == "tool_result");
        let answered: Vec<&str> = results.map(|block| text_of(&block["tool_use_id"])).collect();
        for id in &open {
            let times = answered.iter().filter(|answered| *answered == id).count();
            self.violations.require(times == 1, || {
                format!("the call {id:?} is answered {times} times at the beginning of message {index}")
            });
        }
        for id in answered.iter().filter(|id| !open.contains(id)) {
            self.violations.0.push(format!("message {index} answers {id:?}, which the message before does not call"));
        }
        let late = blocks.iter().skip(answered.len()).any(|block| block["type"] == "tool_result");
        self.violations.require(!late, || format!("message {index} has a tool result after other content"));
        for block in blocks {
            self.check_block(index, role, block);
        }
    }

    fn check_block(&mut self, index: usize, role: &str, block: &'a Value) {
        let at_message = |problem: &str| format!("message {index}: {problem}");
        match (role, text_of(&block["type"])) {
            (_, "text") => {
                let words = text_of(&block["text"]);
                self.violations.require(!words.trim().is_empty(), || at_message("a text is empty"));
            }
            ("user", "image") => {
                let source = &block["source"];
                let inline = !text_of(&source["data"]).is_empty() && is_image_mime_type(text_of(&source["media_type"]));
                let fits = inline || text_of(&source["url"]).starts_with("http");
                self.violations.require(fits, || at_message("an image has no accepted source"));
            }
            ("user", "tool_result") => {}
            ("assistant", "thinking") => {
                let known = self.ledger.is_valid_signature(
                    self.model,
                    text_of(&block["signature"]),
                    text_of(&block["thinking"]),
                );
                self.violations.require(known, || {
                    at_message("the signature of a thinking block does not match its text and model")
                });
                self.violations
                    .require(block.get("cache_control").is_none(), || at_message("a thinking block has cache_control"));
            }
            ("assistant", "tool_use") => {
                let id = text_of(&block["id"]);
                self.violations.require(is_valid_tool_name(id), || at_message("a call has an invalid id"));
                self.violations.require(self.call_ids.insert(id), || at_message("the id of a call is used again"));
                self.violations
                    .require(is_valid_tool_name(text_of(&block["name"])), || at_message("a call has an invalid name"));
                self.violations
                    .require(block["input"].is_object(), || at_message("the input of a call is not an object"));
                self.open_calls.push(id);
            }
            (role, kind) => {
                self.violations.0.push(at_message(&format!("a block {kind:?} is not accepted from {role:?}")));
            }
        }
    }

    fn finish(mut self, messages: &[Value], has_thinking: bool) -> ViolationList {
        let ends_well = messages.last().is_some_and(|last| last["role"] == "user");
        self.violations.require(ends_well, || "the last message is not one of the user".to_owned());
        let answers = messages.last().is_some_and(|last| last["content"][0]["type"] == "tool_result");
        let before = messages.iter().rev().find(|message| message["role"] == "assistant");
        if let Some(before) = before.filter(|_| has_thinking && answers) {
            let first = text_of(&before["content"][0]["type"]);
            let problem = || {
                format!("with thinking, a step must start with a thinking block, but this one starts with {first:?}")
            };
            self.violations.require(first == "thinking", problem);
        }
        self.violations
    }
}

pub(super) fn frames(request: &Value, completion: &ScriptedCompletion, ledger: &mut ReplyLedger) -> Vec<String> {
    let usage = completion.usage;
    let mut frames = vec![
        message_start_frame(usage.prompt - usage.cached, usage.cached),
        leading_sse_event("ping", &json!({"type": "ping"})),
    ];
    let mut blocks: Vec<(Value, Vec<Value>)> = Vec::new();
    if !completion.reasoning.is_empty() {
        let mut deltas: Vec<Value> = split_words(&completion.reasoning)
            .map(|word| json!({"type": "thinking_delta", "thinking": word}))
            .collect();
        deltas.push(
            json!({"type": "signature_delta", "signature": ledger.sign(text_of(&request["model"]), &completion.reasoning)}),
        );
        blocks.push((json!({"type": "thinking", "thinking": "", "signature": ""}), deltas));
    }
    if !completion.text.is_empty() {
        let deltas = split_words(&completion.text).map(|word| json!({"type": "text_delta", "text": word})).collect();
        blocks.push((json!({"type": "text", "text": ""}), deltas));
    }
    for call in &completion.calls {
        let fragments = split_arguments(&call.arguments).into_iter();
        let deltas = fragments.map(|part| json!({"type": "input_json_delta", "partial_json": part})).collect();
        blocks.push((json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}), deltas));
    }
    for (index, (block, deltas)) in blocks.into_iter().enumerate() {
        frames.push(block_start_frame(index, &block));
        frames.extend(deltas.into_iter().map(|delta| block_delta_frame(index, &delta)));
        let stop = json!({"type": "content_block_stop", "index": index});
        frames.push(leading_sse_event("content_block_stop", &stop));
    }
    let reason = match completion {
        ScriptedCompletion { is_truncated: true, .. } => "max_tokens",
        ScriptedCompletion { calls, .. } if !calls.is_empty() => "tool_use",
        ScriptedCompletion { .. } => "end_turn",
    };
    let end = json!({
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": usage.completion},
    });
    frames.push(sse_event("message_delta", &end));
    frames.push(sse_event("message_stop", &json!({"type": "message_stop"})));
    frames
}

fn message_start_frame(input: u64, cached: u64) -> String {
    let usage = json!({
        "input_tokens": input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": 1,
    });
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage});
    leading_sse_event("message_start", &json!({"type": "message_start", "message": message}))
}

fn block_start_frame(index: usize, block: &Value) -> String {
    let data = json!({"type": "content_block_start", "index": index, "content_block": block});
    leading_sse_event("content_block_start", &data)
}

fn block_delta_frame(index: usize, delta: &Value) -> String {
    sse_event("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

pub(super) fn partial_frames<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut frames = vec![message_start_frame(10, 0), block_start_frame(0, &json!({"type": "text", "text": ""}))];
    frames.extend(words.map(|word| block_delta_frame(0, &json!({"type": "text_delta", "text": word}))));
    frames
}

pub(super) fn error_frame(message: &str) -> String {
    sse_event("error", &json!({"type": "error", "error": {"type": "api_error", "message": message}}))
}

pub(super) fn overflow_response() -> (u16, Value) {
    let message = "prompt is too long: 210000 tokens > 200000 maximum";
    (400, json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}}))
}
