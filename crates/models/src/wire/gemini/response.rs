//! Response reader for Gemini.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::{JsonObject, ToolCall};
use serde_json::{Value, json};

use super::{CALL_ID_KEY, SIGNATURE_KEY};
use crate::frame_decoder::WireFrame;
use crate::provider_error::ResponseFault;
use crate::wire::provider_data::ModelOrigin;
use crate::wire::response_reader::{
    self, FrameProgress, MAX_REPLY_CALLS, MISSING_STOP_REASON, ResponseReader, StopReason, non_empty_str,
    reported_fault,
};
use crate::wire::usage_counts::{UsageCounts, sum_known};

/// Reader for one response.
pub(in crate::wire) struct GeminiReader {
    origin: ModelOrigin,
    calls: Vec<ToolCall>,
    /// Size of the calls, with their signatures.
    call_bytes: usize,
    /// Signature of the text, if it has one.
    text_signature: Option<Value>,
    usage: UsageCounts,
    stop_reason: Option<StopReason>,
}

impl GeminiReader {
    pub(in crate::wire) fn new(origin: ModelOrigin) -> Self {
        let (calls, usage) = (Vec::new(), UsageCounts::default());
        Self { origin, calls, call_bytes: 0, text_signature: None, usage, stop_reason: None }
    }

    fn read_part(&mut self, part: &Value, events: &mut Vec<ModelEvent>) -> Result<(), ResponseFault> {
        let signature = part.get("thoughtSignature").cloned();
        if let Some(call) = part.get("functionCall") {
            return self.read_call(call, signature);
        }
        match (non_empty_str(&part["text"]), part["thought"] == true) {
            (Some(text), true) => events.push(ModelEvent::Reasoning(text.to_owned())),
            (Some(text), false) => events.push(ModelEvent::Text(text.to_owned())),
            (None, _) => {}
        }
        self.text_signature = signature.or(self.text_signature.take());
        Ok(())
    }

    fn read_call(&mut self, function_call: &Value, signature: Option<Value>) -> Result<(), ResponseFault> {
        // One call over the limit is enough to end the response.
        if self.calls.len() > MAX_REPLY_CALLS {
            return Ok(());
        }
        let name = non_empty_str(&function_call["name"]).ok_or(ResponseFault::Malformed("a tool call has no name"))?;
        let provider_id = non_empty_str(&function_call["id"]);
        let arguments = match &function_call["args"] {
            Value::Null => "{}".to_owned(),
            arguments => arguments.to_string(),
        };
        let id = provider_id.map_or_else(|| format!("call_{}", self.calls.len()), str::to_owned);
        let signature_bytes = signature.as_ref().and_then(Value::as_str).map_or(0, str::len);
        self.call_bytes += id.len() + name.len() + arguments.len() + signature_bytes;
        let mut call = ToolCall::new(id, name, arguments);
        let mut data = JsonObject::new();
        data.extend(provider_id.map(|_| (CALL_ID_KEY.to_owned(), json!(true))));
        data.extend(signature.map(|signature| (SIGNATURE_KEY.to_owned(), signature)));
        self.origin.attach_to_call(&mut call, data);
        self.calls.push(call);
        Ok(())
    }

    fn read_usage(&mut self, usage: &Value) {
        let count = |name: &str| usage[name].as_u64();
        if usage.is_object() {
            let reasoning = count("thoughtsTokenCount");
            self.usage = UsageCounts {
                prompt: sum_known(&[count("promptTokenCount"), count("toolUsePromptTokenCount")]),
                completion: sum_known(&[count("candidatesTokenCount"), reasoning]),
                cached: count("cachedContentTokenCount"),
                cache_written: None,
                reasoning,
            };
        }
    }
}

impl ResponseReader for GeminiReader {
    fn read(&mut self, frame: &WireFrame, events: &mut Vec<ModelEvent>) -> Result<FrameProgress, ResponseFault> {
        let chunk = response_reader::parse_json(&frame.data)?;
        if chunk.get("error").is_some() {
            return Err(reported_fault(&chunk["error"]));
        }
        if non_empty_str(&chunk["promptFeedback"]["blockReason"]).is_some() {
            return Err(ResponseFault::Filtered);
        }
        let call_count = self.calls.len();
        self.read_usage(&chunk["usageMetadata"]);
        let candidate = &chunk["candidates"][0];
        let parts = candidate["content"]["parts"].as_array().into_iter().flatten();
        parts.into_iter().try_for_each(|part| self.read_part(part, events))?;
        self.stop_reason = match candidate["finishReason"].as_str() {
            None | Some("" | "FINISH_REASON_UNSPECIFIED") => self.stop_reason,
            Some("MAX_TOKENS") => Some(StopReason::Truncated),
            Some("STOP") => Some(StopReason::Completed),
            Some("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS") => {
                return Err(ResponseFault::Incomplete("the model made an invalid tool call"));
            }
            Some("OTHER") => return Err(ResponseFault::Incomplete("it ended without a known reason")),
            // All other reasons are filters: safety, recitation, word lists and more.
            Some(_) => Some(StopReason::Filtered),
        };
        let has_content = !events.is_empty() || self.calls.len() > call_count || self.stop_reason.is_some();
        Ok(if has_content { FrameProgress::More } else { FrameProgress::KeepAlive })
    }

    fn call_count(&self) -> usize {
        self.calls.len()
    }

    fn held_bytes(&self) -> usize {
        self.call_bytes
    }

    fn has_stop_reason(&self) -> bool {
        self.stop_reason.is_some()
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, ResponseFault> {
        let stop_reason = self.stop_reason.ok_or(MISSING_STOP_REASON)?;
        let mut calls = std::mem::take(&mut self.calls);
        let signature =
            self.text_signature.take().map(|signature| JsonObject::from_iter([(SIGNATURE_KEY.to_owned(), signature)]));
        let mut text_data = None;
        match (signature, calls.first_mut()) {
            (Some(data), Some(first)) if self.origin.call_data(first, SIGNATURE_KEY).is_none() => {
                self.origin.attach_to_call(first, data);
            }
            (Some(data), None) => text_data = Some(self.origin.text_data_event(data)),
            _ => {}
        }
        let mut events: Vec<ModelEvent> = calls.into_iter().map(ModelEvent::ToolCall).chain(text_data).collect();
        events.extend(self.usage.into_usage().map(ModelEvent::Usage));
        stop_reason.append_final_events(events)
    }
}
