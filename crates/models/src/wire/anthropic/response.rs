//! Response reader for Anthropic Messages.

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

/// Reader for one response.
pub(in crate::wire) struct AnthropicReader {
    origin: ModelOrigin,
    open_blocks: BTreeMap<u64, ContentBlock>,
    items: ResponseItems,
    /// Size of the calls and the reasoning.
    held_bytes: usize,
    usage: serde_json::Map<String, Value>,
    stop_reason: Option<StopReason>,
}

/// Content block that has started.
enum ContentBlock {
    Text,
    Thinking {
        text: String,
        signature: String,
    },
    ToolUse {
        id: String,
        name: String,
        initial_input: Value,
        arguments: String,
    },
    /// Block returned verbatim.
    Opaque(Value),
    /// Block of an unknown type.
    Unknown,
}

impl AnthropicReader {
    pub(in crate::wire) fn new(origin: ModelOrigin) -> Self {
        Self {
            origin,
            open_blocks: BTreeMap::new(),
            items: ResponseItems::default(),
            held_bytes: 0,
            usage: serde_json::Map::new(),
            stop_reason: None,
        }
    }

    fn start_block(&mut self, index: u64, block: &Value, events: &mut Vec<ModelEvent>) {
        let field = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        let started = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                self.emit_text(&field("text"), events);
                ContentBlock::Text
            }
            "thinking" => {
                self.held_bytes += field("thinking").len() + field("signature").len();
                ContentBlock::Thinking { text: field("thinking"), signature: field("signature") }
            }
            "tool_use" => {
                self.items.start_call();
                self.held_bytes += block.to_string().len();
                ContentBlock::ToolUse {
                    id: field("id"),
                    name: field("name"),
                    initial_input: block["input"].clone(),
                    arguments: String::new(),
                }
            }
            "redacted_thinking" => {
                self.held_bytes += field("data").len();
                ContentBlock::Opaque(block.clone())
            }
            _ => ContentBlock::Unknown,
        };
        self.open_blocks.insert(index, started);
    }

    fn emit_text(&mut self, text: &str, events: &mut Vec<ModelEvent>) {
        if !text.is_empty() {
            self.items.record_text();
            events.push(ModelEvent::Text(text.to_owned()));
        }
    }

    /// Applies a delta. Returns true if it adds something to an open block.
    fn apply_delta(&mut self, index: u64, delta: &Value, events: &mut Vec<ModelEvent>) -> bool {
        if let Some(text) = non_empty_str(&delta["text"]) {
            self.emit_text(text, events);
            return true;
        }
        let field = |name: &str| delta[name].as_str().unwrap_or_default();
        match self.open_blocks.get_mut(&index) {
            Some(ContentBlock::Thinking { text, signature }) => {
                let thinking = field("thinking");
                if !thinking.is_empty() {
                    text.push_str(thinking);
                    events.push(ModelEvent::Reasoning(thinking.to_owned()));
                }
                signature.push_str(field("signature"));
                self.held_bytes += thinking.len() + field("signature").len();
            }
            Some(ContentBlock::ToolUse { arguments, .. }) => {
                arguments.push_str(field("partial_json"));
                self.held_bytes += field("partial_json").len();
            }
            Some(ContentBlock::Text | ContentBlock::Opaque(_) | ContentBlock::Unknown) => {}
            None => return false,
        }
        true
    }

    fn finish_block(&mut self, index: u64) -> Result<(), ResponseFault> {
        match self.open_blocks.remove(&index) {
            Some(ContentBlock::Thinking { text, signature }) => {
                self.items.push_item(json!({"type": "thinking", "thinking": text, "signature": signature}));
            }
            Some(ContentBlock::Opaque(block)) => self.items.push_item(block),
            Some(ContentBlock::ToolUse { id, name, initial_input, arguments }) => {
                if id.is_empty() || name.is_empty() {
                    return Err(ResponseFault::Malformed("a tool call has no id or no name"));
                }
                // An empty object announces arguments that follow as deltas.
                let initial_input = initial_input.as_object().filter(|input| arguments.is_empty() && !input.is_empty());
                let arguments = initial_input.map_or(arguments, |input| json!(input).to_string());
                self.items.push_call(ToolCall::new(id, name, arguments));
            }
            Some(ContentBlock::Text | ContentBlock::Unknown) | None => {}
        }
        Ok(())
    }

    fn usage_counts(&self) -> UsageCounts {
        let count = |name: &str| self.usage.get(name).and_then(Value::as_u64);
        let (cached, written) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
        UsageCounts {
            prompt: sum_known(&[count("input_tokens"), cached, written]),
            completion: count("output_tokens"),
            cached,
            cache_written: written,
            reasoning: None,
        }
    }

    fn merge_usage(&mut self, usage: &Value) {
        let known = usage.as_object().into_iter().flatten().filter(|(_, count)| !count.is_null());
        self.usage.extend(known.map(|(name, count)| (name.clone(), count.clone())));
    }
}

/// True for a delta without content: all its fields but the type are empty.
fn is_empty_delta(delta: &Value) -> bool {
    let fields = delta.as_object().into_iter().flatten().filter(|(name, _)| *name != "type");
    fields.into_iter().all(|(_, value)| value.is_null() || value.as_str().is_some_and(str::is_empty))
}

impl ResponseReader for AnthropicReader {
    fn read(&mut self, frame: &WireFrame, events: &mut Vec<ModelEvent>) -> Result<FrameProgress, ResponseFault> {
        let event = response_reader::parse_json(&frame.data)?;
        let index = event["index"].as_u64().unwrap_or_default();
        let (held_before, calls_before) = (self.held_bytes, self.items.call_count());
        let mut has_content = false;
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.merge_usage(&event["message"]["usage"]),
            "content_block_start" => {
                self.start_block(index, &event["content_block"], events);
                has_content = self.held_bytes > held_before || self.items.call_count() > calls_before;
            }
            "content_block_delta" if is_empty_delta(&event["delta"]) => {}
            "content_block_delta" => has_content = self.apply_delta(index, &event["delta"], events),
            "content_block_stop" => self.finish_block(index)?,
            "message_delta" => {
                self.merge_usage(&event["usage"]);
                self.stop_reason = match event["delta"]["stop_reason"].as_str() {
                    None => self.stop_reason,
                    Some("max_tokens" | "model_context_window_exceeded") => Some(StopReason::Truncated),
                    Some("refusal") => Some(StopReason::Filtered),
                    Some(_) => Some(StopReason::Completed),
                };
            }
            "message_stop" => return Ok(FrameProgress::Complete),
            "error" => {
                return Err(ResponseFault::Reported {
                    status: error_status(&event["error"]),
                    body: event["error"].clone(),
                });
            }
            // Pings and events of later versions.
            _ => {}
        }
        has_content |= !events.is_empty() || self.stop_reason.is_some();
        Ok(if has_content { FrameProgress::More } else { FrameProgress::KeepAlive })
    }

    fn call_count(&self) -> usize {
        self.items.call_count()
    }

    fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    fn has_stop_reason(&self) -> bool {
        self.stop_reason.is_some()
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, ResponseFault> {
        let stop_reason = self.stop_reason.ok_or(MISSING_STOP_REASON)?;
        // A block truncated by the token limit has no stop event.
        let open: Vec<u64> = self.open_blocks.keys().copied().collect();
        open.into_iter().try_for_each(|index| self.finish_block(index))?;
        self.items.fill_missing_arguments(stop_reason);
        let mut events = self.items.take_events(&self.origin, THINKING_KEY);
        events.extend(self.usage_counts().into_usage().map(ModelEvent::Usage));
        stop_reason.append_final_events(events)
    }
}

/// Status that the error would have had before the stream started.
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
