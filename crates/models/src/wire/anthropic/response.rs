//! Reading what Anthropic answers.

use std::collections::BTreeMap;

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::ToolCall;
use serde_json::{Value, json};

use super::THINKING_KEY;
use crate::frame_decoder::WireFrame;
use crate::provider_error::ResponseFault;
use crate::wire::provider_data::{ModelOrigin, ResponseItems};
use crate::wire::response_reader::{
    self, FrameProgress, MISSING_STOP_REASON, ResponseReader, StopReason, non_empty_str,
};
use crate::wire::usage_counts::{UsageCounts, sum_known};

/// What has come of one answer.
pub(in crate::wire) struct AnthropicReader {
    origin: ModelOrigin,
    open_blocks: BTreeMap<u64, ContentBlock>,
    items: ResponseItems,
    usage: serde_json::Map<String, Value>,
    stop_reason: Option<StopReason>,
}

/// A block that has begun.
enum ContentBlock {
    Text,
    Thinking {
        text: String,
        signature: String,
    },
    ToolOperation {
        id: String,
        name: String,
        begun_with: Value,
        arguments: String,
    },
    /// Kept as it is.
    Opaque(Value),
    /// A kind not known here.
    Unknown,
}

impl AnthropicReader {
    pub(in crate::wire) fn new(speaker: ModelOrigin) -> Self {
        let (open, given, usage) = (BTreeMap::new(), ResponseItems::default(), serde_json::Map::new());
        Self { origin: speaker, open_blocks: open, items: given, usage, stop_reason: None }
    }

    fn start_block(&mut self, index: u64, block: &Value, events: &mut Vec<ModelEvent>) {
        let words = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        let begun = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                self.emit_text(&words("text"), events);
                ContentBlock::Text
            }
            "thinking" => ContentBlock::Thinking { text: words("thinking"), signature: words("signature") },
            "tool_use" => {
                self.items.start_call();
                ContentBlock::ToolOperation {
                    id: words("id"),
                    name: words("name"),
                    begun_with: block["input"].clone(),
                    arguments: String::new(),
                }
            }
            "redacted_thinking" => ContentBlock::Opaque(block.clone()),
            _ => ContentBlock::Unknown,
        };
        self.open_blocks.insert(index, begun);
    }

    fn emit_text(&mut self, words: &str, events: &mut Vec<ModelEvent>) {
        if !words.is_empty() {
            self.items.record_text();
            events.push(ModelEvent::Text(words.to_owned()));
        }
    }

    fn apply_delta(&mut self, index: u64, delta: &Value, events: &mut Vec<ModelEvent>) {
        if let Some(words) = non_empty_str(&delta["text"]) {
            return self.emit_text(words, events);
        }
        match self.open_blocks.get_mut(&index) {
            Some(ContentBlock::Thinking { text, signature }) => {
                if let Some(words) = non_empty_str(&delta["thinking"]) {
                    text.push_str(words);
                    events.push(ModelEvent::Reasoning(words.to_owned()));
                }
                signature.push_str(delta["signature"].as_str().unwrap_or_default());
            }
            Some(ContentBlock::ToolOperation { arguments, .. }) => {
                arguments.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            Some(ContentBlock::Text | ContentBlock::Opaque(_) | ContentBlock::Unknown) | None => {}
        }
    }

    fn finish_block(&mut self, index: u64) -> Result<(), ResponseFault> {
        match self.open_blocks.remove(&index) {
            Some(ContentBlock::Thinking { text, signature }) => {
                self.items.push_item(json!({"type": "thinking", "thinking": text, "signature": signature}));
            }
            Some(ContentBlock::Opaque(block)) => self.items.push_item(block),
            Some(ContentBlock::ToolOperation { id, name, begun_with, arguments }) => {
                if id.is_empty() || name.is_empty() {
                    return Err(ResponseFault::Malformed("it calls a tool without an id or a name"));
                }
                // An empty object stands for arguments that are to come.
                let begun_with = begun_with.as_object().filter(|given| arguments.is_empty() && !given.is_empty());
                let whole = begun_with.map_or(arguments, |given| json!(given).to_string());
                self.items.push_call(ToolCall::new(id, name, whole));
            }
            Some(ContentBlock::Text | ContentBlock::Unknown) | None => {}
        }
        Ok(())
    }

    fn usage_counts(&self) -> UsageCounts {
        let figure = |name: &str| self.usage.get(name).and_then(Value::as_u64);
        let (cached, written) = (figure("cache_read_input_tokens"), figure("cache_creation_input_tokens"));
        UsageCounts {
            prompt: sum_known(&[figure("input_tokens"), cached, written]),
            completion: figure("output_tokens"),
            cached,
            cache_written: written,
            reasoning: None,
        }
    }

    fn merge_usage(&mut self, usage: &Value) {
        let known = usage.as_object().into_iter().flatten().filter(|(_, figure)| !figure.is_null());
        self.usage.extend(known.map(|(name, figure)| (name.clone(), figure.clone())));
    }
}

impl ResponseReader for AnthropicReader {
    fn read(&mut self, frame: &WireFrame, events: &mut Vec<ModelEvent>) -> Result<FrameProgress, ResponseFault> {
        let said = response_reader::parse_json(&frame.data)?;
        let index = said["index"].as_u64().unwrap_or_default();
        match said["type"].as_str().unwrap_or_default() {
            "ping" => return Ok(FrameProgress::KeepAlive),
            "message_start" => self.merge_usage(&said["message"]["usage"]),
            "content_block_start" => self.start_block(index, &said["content_block"], events),
            "content_block_delta" => self.apply_delta(index, &said["delta"], events),
            "content_block_stop" => self.finish_block(index)?,
            "message_delta" => {
                self.merge_usage(&said["usage"]);
                self.stop_reason = match said["delta"]["stop_reason"].as_str() {
                    None => self.stop_reason,
                    Some("max_tokens" | "model_context_window_exceeded") => Some(StopReason::Truncated),
                    Some("refusal") => Some(StopReason::Filtered),
                    Some(_) => Some(StopReason::Completed),
                };
            }
            "message_stop" => return Ok(FrameProgress::Complete),
            "error" => {
                return Err(ResponseFault::Reported {
                    status: error_status(&said["error"]),
                    body: said["error"].clone(),
                });
            }
            _ => {}
        }
        Ok(FrameProgress::More)
    }

    fn has_started_call(&self) -> bool {
        self.items.has_started_call()
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, ResponseFault> {
        let ending = self.stop_reason.ok_or(MISSING_STOP_REASON)?;
        // A block that was cut short by the limit has no end.
        let open: Vec<u64> = self.open_blocks.keys().copied().collect();
        open.into_iter().try_for_each(|index| self.finish_block(index))?;
        self.items.fill_missing_arguments(ending);
        let mut events = self.items.take_events(&self.origin, THINKING_KEY);
        events.extend(self.usage_counts().into_usage().map(ModelEvent::Usage));
        ending.append_final_events(events)
    }
}

/// The status an error would have had before the stream began.
fn error_status(error: &Value) -> Option<u16> {
    Some(match error["type"].as_str()? {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "overloaded_error" => 529,
        _ => 500,
    })
}
