//! Response reader for `OpenAI` Responses.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::{JsonObject, ToolCall};
use serde_json::Value;

use super::{ITEM_ID_KEY, REASONING_ITEMS_KEY};
use crate::frame_decoder::WireFrame;
use crate::provider_error::ResponseFault;
use crate::wire::provider_data::{ModelOrigin, ResponseItems};
use crate::wire::response_reader::{
    self, FrameProgress, MISSING_STOP_REASON, ResponseReader, StopReason, non_empty_str,
};
use crate::wire::usage_counts::UsageCounts;

/// Reader for one response.
pub(in crate::wire) struct OpenAiResponsesReader {
    origin: ModelOrigin,
    items: ResponseItems,
    /// Size of the frames of the calls and the reasoning items.
    item_bytes: usize,
    usage: UsageCounts,
    stop_reason: Option<StopReason>,
}

impl OpenAiResponsesReader {
    pub(in crate::wire) fn new(origin: ModelOrigin) -> Self {
        Self {
            origin,
            items: ResponseItems::default(),
            item_bytes: 0,
            usage: UsageCounts::default(),
            stop_reason: None,
        }
    }

    /// Handles a complete item, of a frame of this size.
    fn read_item(&mut self, item: &Value, frame_bytes: usize) -> Result<FrameProgress, ResponseFault> {
        match item["type"].as_str().unwrap_or_default() {
            "message" => self.items.record_text(),
            // Without its encrypted content, reasoning is useless to a provider that stored nothing.
            "reasoning" if non_empty_str(&item["encrypted_content"]).is_some() => {
                let mut item = item.clone();
                item.as_object_mut().into_iter().for_each(|item| {
                    item.remove("status");
                });
                self.items.push_item(item);
                self.item_bytes += frame_bytes;
                return Ok(FrameProgress::More);
            }
            "function_call" => {
                let (Some(id), Some(name)) = (non_empty_str(&item["call_id"]), non_empty_str(&item["name"])) else {
                    return Err(ResponseFault::Malformed("a tool call has no id or no name"));
                };
                let mut call = ToolCall::new(id, name, non_empty_str(&item["arguments"]).unwrap_or_default());
                let data =
                    item.get("id").cloned().map(|id| (ITEM_ID_KEY.to_owned(), id)).into_iter().collect::<JsonObject>();
                self.origin.attach_to_call(&mut call, data);
                self.items.push_call(call);
                self.item_bytes += frame_bytes;
                return Ok(FrameProgress::More);
            }
            _ => {}
        }
        Ok(FrameProgress::KeepAlive)
    }

    fn finish_response(&mut self, response: &Value, stop_reason: StopReason) -> FrameProgress {
        let usage = &response["usage"];
        if usage.is_object() {
            self.usage = UsageCounts {
                prompt: usage["input_tokens"].as_u64(),
                completion: usage["output_tokens"].as_u64(),
                cached: usage["input_tokens_details"]["cached_tokens"].as_u64(),
                cache_written: None,
                reasoning: usage["output_tokens_details"]["reasoning_tokens"].as_u64(),
            };
        }
        self.stop_reason = Some(stop_reason);
        FrameProgress::Complete
    }
}

impl ResponseReader for OpenAiResponsesReader {
    fn read(&mut self, frame: &WireFrame, events: &mut Vec<ModelEvent>) -> Result<FrameProgress, ResponseFault> {
        if frame.data.trim() == "[DONE]" {
            return Ok(FrameProgress::Complete);
        }
        let event = response_reader::parse_json(&frame.data)?;
        let delta = non_empty_str(&event["delta"]).map(str::to_owned);
        match event["type"].as_str().unwrap_or_default() {
            // An empty delta carries no content, like a keep-alive.
            kind if kind.rsplit('.').next() == Some("delta") && delta.is_none() => return Ok(FrameProgress::KeepAlive),
            "response.output_text.delta" | "response.refusal.delta" => events.extend(delta.map(ModelEvent::Text)),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                events.extend(delta.map(ModelEvent::Reasoning));
            }
            "response.output_item.added" if event["item"]["type"] == "function_call" => self.items.start_call(),
            "response.output_item.done" => return self.read_item(&event["item"], frame.data.len()),
            "response.completed" => return Ok(self.finish_response(&event["response"], StopReason::Completed)),
            "response.incomplete" => {
                let filtered = event["response"]["incomplete_details"]["reason"] == "content_filter";
                let stop_reason = if filtered { StopReason::Filtered } else { StopReason::Truncated };
                return Ok(self.finish_response(&event["response"], stop_reason));
            }
            "response.failed" => return Err(reported_fault(&event["response"]["error"])),
            "error" => return Err(reported_fault(event.get("error").unwrap_or(&event))),
            // Parts of arguments, which are complete in their item, and deltas of kinds that are not used.
            _ if delta.is_some() => {}
            // Keep-alives and announcements.
            _ => return Ok(FrameProgress::KeepAlive),
        }
        Ok(FrameProgress::More)
    }

    fn call_count(&self) -> usize {
        self.items.call_count()
    }

    fn held_bytes(&self) -> usize {
        self.item_bytes
    }

    fn has_stop_reason(&self) -> bool {
        self.stop_reason.is_some()
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, ResponseFault> {
        let stop_reason = self.stop_reason.ok_or(MISSING_STOP_REASON)?;
        self.items.fill_missing_arguments(stop_reason);
        let mut events = self.items.take_events(&self.origin, REASONING_ITEMS_KEY);
        events.extend(self.usage.into_usage().map(ModelEvent::Usage));
        stop_reason.append_final_events(events)
    }
}

/// Fault for an error event of the stream. The error code is a name here, so known names are mapped to an HTTP status.
fn reported_fault(error: &Value) -> ResponseFault {
    let status = match error["code"].as_str().unwrap_or_default() {
        "rate_limit_exceeded" => Some(429),
        "server_error" => Some(500),
        _ => None,
    };
    ResponseFault::Reported { status, body: error.clone() }
}
