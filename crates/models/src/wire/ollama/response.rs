//! Response reader for Ollama.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::{JsonObject, ToolCall};
use serde_json::{Value, json};

use super::THINKING_KEY;
use crate::frame_decoder::WireFrame;
use crate::provider_error::ResponseFault;
use crate::wire::provider_data::ModelOrigin;
use crate::wire::response_reader::{
    self, FrameProgress, MAX_REPLY_CALLS, MISSING_STOP_REASON, ResponseReader, StopReason, non_empty_str,
};
use crate::wire::usage_counts::UsageCounts;

/// Reader of one Ollama response.
pub(in crate::wire) struct OllamaReader {
    origin: ModelOrigin,
    calls: Vec<ToolCall>,
    /// Size of the calls.
    call_bytes: usize,
    thinking: String,
    usage: UsageCounts,
    stop_reason: Option<StopReason>,
}

impl OllamaReader {
    pub(in crate::wire) fn new(origin: ModelOrigin) -> Self {
        let (calls, usage) = (Vec::new(), UsageCounts::default());
        Self { origin, calls, call_bytes: 0, thinking: String::new(), usage, stop_reason: None }
    }

    fn read_call(&mut self, call: &Value) -> Result<(), ResponseFault> {
        // One call over the limit is enough to end the response.
        if self.calls.len() > MAX_REPLY_CALLS {
            return Ok(());
        }
        let function = &call["function"];
        let name = non_empty_str(&function["name"]).ok_or(ResponseFault::Malformed("a tool call has no name"))?;
        // Older servers send no ids.
        let id = non_empty_str(&call["id"]).map_or_else(|| format!("call_{}", self.calls.len()), str::to_owned);
        let arguments = match &function["arguments"] {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text.clone(),
            object => object.to_string(),
        };
        self.call_bytes += id.len() + name.len() + arguments.len();
        self.calls.push(ToolCall::new(id, name, arguments));
        Ok(())
    }
}

impl ResponseReader for OllamaReader {
    fn read(&mut self, frame: &WireFrame, events: &mut Vec<ModelEvent>) -> Result<FrameProgress, ResponseFault> {
        let body = response_reader::parse_json(&frame.data)?;
        if let Some(error) = body.get("error") {
            return Err(ResponseFault::Reported { status: None, body: json!({ "message": error }) });
        }
        let message = &body["message"];
        let call_count = self.calls.len();
        if let Some(thinking) = non_empty_str(&message["thinking"]) {
            self.thinking.push_str(thinking);
            events.push(ModelEvent::Reasoning(thinking.to_owned()));
        }
        events.extend(non_empty_str(&message["content"]).map(|text| ModelEvent::Text(text.to_owned())));
        message["tool_calls"].as_array().into_iter().flatten().try_for_each(|call| self.read_call(call))?;
        if body["done"] != true {
            let has_content = !events.is_empty() || self.calls.len() > call_count;
            return Ok(if has_content { FrameProgress::More } else { FrameProgress::KeepAlive });
        }
        let (prompt, completion) = (body["prompt_eval_count"].as_u64(), body["eval_count"].as_u64());
        self.usage = UsageCounts { prompt, completion, ..UsageCounts::default() };
        // Older servers send no `done_reason`; `done` alone marks a complete response.
        self.stop_reason =
            Some(if body["done_reason"] == "length" { StopReason::Truncated } else { StopReason::Completed });
        Ok(FrameProgress::Complete)
    }

    fn call_count(&self) -> usize {
        self.calls.len()
    }

    fn held_bytes(&self) -> usize {
        self.call_bytes + self.thinking.len()
    }

    fn has_stop_reason(&self) -> bool {
        self.stop_reason.is_some()
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, ResponseFault> {
        let stop_reason = self.stop_reason.ok_or(MISSING_STOP_REASON)?;
        let mut calls = std::mem::take(&mut self.calls);
        // The reasoning that led to calls must go back to the model with them.
        if let Some(first) = calls.first_mut().filter(|_| !self.thinking.is_empty()) {
            let thinking = Value::from(std::mem::take(&mut self.thinking));
            self.origin.attach_to_call(first, JsonObject::from_iter([(THINKING_KEY.to_owned(), thinking)]));
        }
        let mut events: Vec<ModelEvent> = calls.into_iter().map(ModelEvent::ToolCall).collect();
        events.extend(self.usage.into_usage().map(ModelEvent::Usage));
        stop_reason.append_final_events(events)
    }
}
