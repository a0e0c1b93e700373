//! `OpenAI` Responses.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::reply_ledger::ReplyLedger;
use super::rules::{
    ViolationList, array_items, is_arguments_object, is_image_url, is_valid_tool_name, str_or_empty as text_of,
};
use super::{leading_sse_event, split_arguments, split_words, sse_event};
use crate::scripted_reply::ScriptedCompletion;

/// Maximum length of a call id.
const MAX_RESPONSES_CALL_ID_LEN: usize = 64;

pub(super) fn violations(body: &Value, ledger: &ReplyLedger) -> Vec<String> {
    let mut violations = ViolationList::default();
    violations.require_text(body, "model");
    violations.require_stream(body);
    violations.require(body["store"] == false, || {
        "store is not false, so the provider would keep the conversation".to_owned()
    });
    violations.check_tools(array_items(&body["tools"]).iter().map(|tool| (&tool["name"], &tool["parameters"])));
    let items = array_items(&body["input"]);
    violations.require(!items.is_empty(), || "there is no input".to_owned());
    let model = text_of(&body["model"]);
    let mut validator = ResponsesValidator {
        violations,
        ledger,
        model,
        call_ids: HashSet::new(),
        open_calls: Vec::new(),
        item_ids: HashSet::new(),
    };
    for (index, item) in items.iter().enumerate() {
        validator.check_item(index, item, items.get(index + 1));
    }
    let ResponsesValidator { mut violations, open_calls, .. } = validator;
    violations
        .require(open_calls.is_empty(), || format!("no tool output was found for the function calls {open_calls:?}"));
    let last = items.last().map(|last| (text_of(&last["type"]), text_of(&last["role"])));
    let ends_well = matches!(last, Some(("function_call_output", _) | (_, "user")));
    violations.require(ends_well, || "the last item is neither of the user nor of a tool".to_owned());
    violations.0
}

struct ResponsesValidator<'a> {
    violations: ViolationList,
    ledger: &'a ReplyLedger,
    model: &'a str,
    call_ids: HashSet<&'a str>,
    open_calls: Vec<&'a str>,
    /// Ids of the items read up to now.
    item_ids: HashSet<&'a str>,
}

impl<'a> ResponsesValidator<'a> {
    fn check_item(&mut self, index: usize, item: &'a Value, next: Option<&Value>) {
        let at_item = |problem: &str| format!("input[{index}]: {problem}");
        let id = text_of(&item["id"]);
        match text_of(&item["type"]) {
            "" | "message" => {
                let role = text_of(&item["role"]);
                self.violations
                    .require(self.open_calls.is_empty(), || at_item("a message comes between a call and its output"));
                let known = ["user", "assistant", "developer", "system"].contains(&role);
                self.violations.require(known, || at_item(&format!("unknown role {role:?}")));
                let kind = if role == "assistant" { "output_text" } else { "input_" };
                let parts = array_items(&item["content"]);
                let fits = parts.iter().all(|part| text_of(&part["type"]).starts_with(kind));
                self.violations.require(fits, || at_item("a part does not fit the role"));
                self.violations.require(parts.iter().all(is_valid_part), || at_item("a part is not accepted"));
                self.violations
                    .require(!parts.is_empty() || item["content"].is_string(), || at_item("it has no content"));
            }
            "function_call" => {
                let call_id = text_of(&item["call_id"]);
                self.violations.require(!call_id.is_empty() && self.call_ids.insert(call_id), || {
                    at_item("its call_id is missing or used again")
                });
                self.violations.require(call_id.chars().count() <= MAX_RESPONSES_CALL_ID_LEN, || {
                    at_item("its call_id is too long")
                });
                let fits = is_valid_tool_name(text_of(&item["name"])) && is_arguments_object(&item["arguments"]);
                self.violations.require(fits, || at_item("it is not a valid function call"));
                let dependency = self.ledger.dependency_of(id);
                let is_satisfied = dependency.is_none_or(|dependency| self.item_ids.contains(dependency));
                self.violations
                    .require(is_satisfied, || at_item("it was provided without its required reasoning item"));
                self.open_calls.push(call_id);
            }
            "function_call_output" => {
                let call_id = text_of(&item["call_id"]);
                let position = self.open_calls.iter().position(|open_calls| *open_calls == call_id);
                self.violations.require(position.is_some(), || at_item("it answers no open call"));
                if let Some(position) = position {
                    self.open_calls.remove(position);
                }
                self.violations
                    .require(item["output"].is_string() || item["output"].is_array(), || at_item("it has no output"));
                self.violations.require(array_items(&item["output"]).iter().all(is_valid_part), || {
                    at_item("a part is not accepted")
                });
            }
            "reasoning" => {
                let known = self.ledger.is_valid_signature(self.model, text_of(&item["encrypted_content"]), id);
                self.violations.require(known, || at_item("its encrypted content could not be verified"));
                let kind = next.map(|next| text_of(&next["type"])).unwrap_or_default();
                let followed = matches!(kind, "function_call" | "message" | "reasoning");
                self.violations.require(followed, || at_item("it comes without the item that must follow it"));
            }
            other => self.violations.0.push(at_item(&format!("unknown type {other:?}"))),
        }
        self.item_ids.insert(id);
    }
}

fn is_valid_part(part: &Value) -> bool {
    match text_of(&part["type"]) {
        "input_text" | "output_text" => part["text"].is_string(),
        "input_image" => is_image_url(text_of(&part["image_url"])),
        _ => false,
    }
}

pub(super) fn frames(request: &Value, completion: &ScriptedCompletion, ledger: &mut ReplyLedger) -> Vec<String> {
    let mut frames = vec![created_frame()];
    let mut index = 0;
    let mut output = |frames: &mut Vec<String>, mut item: Value, deltas: Vec<String>| {
        frames.push(leading_sse_event(
            "response.output_item.added",
            &item_event("response.output_item.added", index, &item),
        ));
        frames.extend(deltas);
        item["status"] = json!("completed");
        frames.push(leading_sse_event(
            "response.output_item.done",
            &item_event("response.output_item.done", index, &item),
        ));
        index += 1;
    };
    let mut reasoning = None;
    if !completion.reasoning.is_empty() {
        let id = format!("rs_{:04}", ledger.next_number());
        let summary = json!([{"type": "summary_text", "text": completion.reasoning}]);
        let encrypted = ledger.sign(text_of(&request["model"]), &id);
        let item = json!({"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted});
        let kind = "response.reasoning_summary_text.delta";
        let deltas =
            split_words(&completion.reasoning).map(|word| sse_event(kind, &json!({"type": kind, "delta": word})));
        output(&mut frames, item, deltas.collect());
        reasoning = Some(id);
    }
    if !completion.text.is_empty() {
        let content = json!([{"type": "output_text", "text": completion.text, "annotations": []}]);
        let id = format!("msg_{:04}", ledger.next_number());
        let item = json!({"type": "message", "id": id, "role": "assistant", "content": content});
        output(&mut frames, item, split_words(&completion.text).map(text_frame).collect());
    }
    for call in &completion.calls {
        let id = format!("fc_{:04}", ledger.next_number());
        if let Some(reasoning) = &reasoning {
            ledger.add_dependency(&id, reasoning);
        }
        let (call_id, name, arguments) = (&call.id, &call.name, &call.arguments);
        let item = json!({"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments});
        let kind = "response.function_call_arguments.delta";
        let deltas = split_arguments(&call.arguments)
            .into_iter()
            .map(|part| sse_event(kind, &json!({"type": kind, "delta": part})));
        output(&mut frames, item, deltas.collect());
    }
    let usage = completion.usage;
    let mut response = json!({"id": "resp_1", "status": "completed", "usage": {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }});
    let kind = if completion.is_truncated {
        response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        "response.incomplete"
    } else {
        "response.completed"
    };
    frames.push(sse_event(kind, &json!({"type": kind, "response": response})));
    frames
}

fn created_frame() -> String {
    let response = json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}});
    leading_sse_event("response.created", &response)
}

fn item_event(kind: &str, index: usize, item: &Value) -> Value {
    json!({"type": kind, "output_index": index, "item": item})
}

fn text_frame(word: &str) -> String {
    let kind = "response.output_text.delta";
    sse_event(kind, &json!({"type": kind, "delta": word}))
}

pub(super) fn partial_frames<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    std::iter::once(created_frame()).chain(words.map(text_frame)).collect()
}

pub(super) fn error_frame(message: &str) -> String {
    let error = json!({"code": "server_error", "message": message});
    let data = json!({"type": "response.failed", "response": {"status": "failed", "error": error}});
    sse_event("response.failed", &data)
}

pub(super) fn overflow_response() -> (u16, Value) {
    let message = "Your input exceeds the context window of this model. Please adjust your input and try again.";
    let error = json!({"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"});
    (400, json!({ "error": error }))
}
