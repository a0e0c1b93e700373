//! Response reader for `OpenAI` chat.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::{JsonObject, ToolCall};
use serde_json::Value;

use super::call_assembler::CallAssembler;
use super::{REASONING_DETAILS_KEY, REASONING_TEXT_KEYS};
use crate::frame_decoder::WireFrame;
use crate::provider_error::ResponseFault;
use crate::wire::provider_data::ModelOrigin;
use crate::wire::response_reader::{
    FrameProgress, MAX_REPLY_CALLS, MISSING_STOP_REASON, ResponseReader, StopReason, non_empty_str, parse_json,
    reported_fault,
};
use crate::wire::sanitize::{MAX_CALL_ID_CHARS, PROVIDER_ID_KEY};
use crate::wire::usage_counts::UsageCounts;

/// Reader for one response.
pub(in crate::wire) struct OpenAiChatReader {
    origin: ModelOrigin,
    calls: CallAssembler,
    usage: UsageCounts,
    cost: Option<Value>,
    stop_reason: Option<StopReason>,
    /// Reasoning text, with the key the server uses for it.
    reasoning: Option<(&'static str, String)>,
    /// Reasoning items that only the server understands.
    reasoning_details: Vec<Value>,
    /// Size of the reasoning.
    reasoning_bytes: usize,
}

impl OpenAiChatReader {
    pub(in crate::wire) fn new(origin: ModelOrigin) -> Self {
        Self {
            origin,
            calls: CallAssembler::default(),
            usage: UsageCounts::default(),
            cost: None,
            stop_reason: None,
            reasoning: None,
            reasoning_details: Vec::new(),
            reasoning_bytes: 0,
        }
    }

    fn read_choice(&mut self, choice: &Value, events: &mut Vec<ModelEvent>) {
        // A server that does not stream sends the whole message at once.
        let delta = choice.get("delta").or(choice.get("message")).unwrap_or(&Value::Null);
        for name in REASONING_TEXT_KEYS {
            if let Some(text) = non_empty_str(&delta[name]) {
                self.reasoning.get_or_insert((name, String::new())).1.push_str(text);
                self.reasoning_bytes += text.len();
                events.push(ModelEvent::Reasoning(text.to_owned()));
                break;
            }
        }
        let details = delta[REASONING_DETAILS_KEY].as_array().into_iter().flatten();
        for detail in details.filter(|detail| detail.as_object().is_some_and(|detail| !detail.is_empty())) {
            self.reasoning_bytes += detail.to_string().len();
            self.reasoning_details.push(detail.clone());
        }
        for text in [&delta["content"], &delta["refusal"]].into_iter().filter_map(non_empty_str) {
            events.push(ModelEvent::Text(text.to_owned()));
        }
        for fragment in delta["tool_calls"].as_array().into_iter().flatten() {
            // One call over the limit is enough to end the response.
            if self.calls.len() <= MAX_REPLY_CALLS {
                self.calls.push(fragment);
            }
        }
        self.stop_reason = match choice["finish_reason"].as_str() {
            None | Some("") => self.stop_reason,
            Some("length") => Some(StopReason::Truncated),
            Some("content_filter") => Some(StopReason::Filtered),
            Some(_) => Some(StopReason::Completed),
        };
    }

    fn read_usage(&mut self, usage: &Value) {
        if usage.is_object() {
            self.usage = UsageCounts {
                prompt: usage["prompt_tokens"].as_u64(),
                completion: usage["completion_tokens"].as_u64(),
                cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64(),
                cache_written: usage["prompt_tokens_details"]["cache_write_tokens"].as_u64(),
                reasoning: usage["completion_tokens_details"]["reasoning_tokens"].as_u64(),
            };
            self.cost = usage.get("cost").filter(|cost| cost.is_number()).cloned();
        }
    }

    /// Takes the reasoning that the server expects back with the calls.
    fn take_reasoning_data(&mut self) -> JsonObject {
        let details = std::mem::take(&mut self.reasoning_details);
        if !details.is_empty() {
            return JsonObject::from_iter([(REASONING_DETAILS_KEY.to_owned(), Value::Array(details))]);
        }
        self.reasoning.take().map(|(name, text)| (name.to_owned(), Value::from(text))).into_iter().collect()
    }
}

impl ResponseReader for OpenAiChatReader {
    fn read(&mut self, frame: &WireFrame, events: &mut Vec<ModelEvent>) -> Result<FrameProgress, ResponseFault> {
        if frame.data.trim() == "[DONE]" {
            return Ok(FrameProgress::Complete);
        }
        let chunk = parse_json(&frame.data)?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(reported_fault(&chunk["error"]));
        }
        self.read_usage(&chunk["usage"]);
        let (held_before, calls_before) = (self.held_bytes(), self.calls.len());
        // Requests ask for a single choice.
        self.read_choice(&chunk["choices"][0], events);
        let has_content = !events.is_empty()
            || self.held_bytes() > held_before
            || self.calls.len() > calls_before
            || self.stop_reason.is_some();
        Ok(if has_content { FrameProgress::More } else { FrameProgress::KeepAlive })
    }

    fn call_count(&self) -> usize {
        self.calls.len()
    }

    fn held_bytes(&self) -> usize {
        self.calls.bytes() + self.reasoning_bytes
    }

    fn has_stop_reason(&self) -> bool {
        self.stop_reason.is_some()
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, ResponseFault> {
        let stop_reason = self.stop_reason.ok_or(MISSING_STOP_REASON)?;
        let mut events = Vec::new();
        if !self.calls.is_empty() {
            let reasoning = self.take_reasoning_data();
            let calls = std::mem::take(&mut self.calls).finish();
            let mut calls: Vec<ToolCall> = calls.ok_or(ResponseFault::Malformed("a tool call has no name"))?;
            stop_reason.fill_missing_arguments(&mut calls);
            // Some servers encode state in the id and need it back unchanged.
            for long in calls.iter_mut().filter(|call| call.id.chars().count() > MAX_CALL_ID_CHARS) {
                self.origin
                    .attach_to_call(long, JsonObject::from_iter([(PROVIDER_ID_KEY.to_owned(), Value::Bool(true))]));
            }
            if let Some(first) = calls.first_mut() {
                self.origin.attach_to_call(first, reasoning);
            }
            events.extend(calls.into_iter().map(ModelEvent::ToolCall));
        }
        if let Some(mut usage) = self.usage.into_usage() {
            usage.extra.extend(self.cost.take().map(|cost| ("cost".to_owned(), cost)));
            events.push(ModelEvent::Usage(usage));
        }
        stop_reason.append_final_events(events)
    }
}
