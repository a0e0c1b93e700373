//! Sizes of requests.

use capstan_hooks::contracts::ModelCall;
use capstan_protocol::{ChatMessage, Content, ContentPart, JsonObject, KnownPart, ToolCall, ToolSpec};
use serde::Serialize;

/// Size of a request, in bytes, by the limit that applies to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PayloadSize {
    /// Arguments: at most [`ApiLimits::payload_bytes`](crate::ApiLimits::payload_bytes).
    Arguments(u64),
    /// Contents, which may be large: at most [`ApiLimits::content_bytes`](crate::ApiLimits::content_bytes).
    Content(u64),
}

/// Size of a tool call apart from its texts.
const TOOL_CALL_OVERHEAD_BYTES: u64 = 60;

/// Counts bytes and discards them.
struct ByteCounter(u64);

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Size of a value as JSON, in bytes. A value that cannot be serialized has the maximum size.
pub(crate) fn json_size(value: &impl Serialize) -> u64 {
    let mut counter = ByteCounter(0);
    serde_json::to_writer(&mut counter, value).map_or(u64::MAX, |()| counter.0)
}

/// Size of a text.
pub(crate) fn text_size(text: &str) -> u64 {
    text.len() as u64
}

/// Size of an optional text, such as a cursor.
pub(crate) fn optional_text_size(text: Option<&str>) -> u64 {
    text.map_or(0, text_size)
}

/// Size of a content, including images.
pub(crate) fn content_size(content: &Content) -> u64 {
    match content {
        Content::Text(text) => text_size(text),
        Content::Parts(parts) => parts.iter().map(content_part_size).sum(),
    }
}

/// Size of a part of a content.
pub(crate) fn content_part_size(part: &ContentPart) -> u64 {
    match part {
        ContentPart::Known(KnownPart::Text { text }) => text_size(text),
        ContentPart::Known(KnownPart::ImageUrl { image_url }) => text_size(&image_url.url),
        ContentPart::Other(part) => json_size(part),
    }
}

/// Size of tool calls with all their fields, computed without serializing them.
pub(crate) fn tool_calls_size(calls: &[ToolCall]) -> u64 {
    let call_size = |call: &ToolCall| {
        let ToolCall { id, kind, function, extra } = call;
        let texts = [id, kind, &function.name, &function.arguments];
        TOOL_CALL_OVERHEAD_BYTES + texts.into_iter().map(|text| text_size(text)).sum::<u64>() + extra_size(extra)
    };
    calls.iter().map(call_size).sum()
}

/// Size of extra fields, which are rare.
fn extra_size(extra: &JsonObject) -> u64 {
    if extra.is_empty() { 0 } else { json_size(extra) }
}

/// Size of a model request without its tools, computed without serializing it: it is long and made for every step.
pub(crate) fn model_call_size(call: &ModelCall) -> u64 {
    let message_size = |message: &ChatMessage| {
        let ChatMessage { role: _, content, tool_calls, tool_call_id, name, extra } = message;
        let names: u64 = [tool_call_id, name].into_iter().flatten().map(|name| text_size(name)).sum();
        content_size(content) + tool_calls_size(tool_calls) + names + extra_size(extra)
    };
    text_size(&call.system) + call.messages.iter().map(message_size).sum::<u64>()
}

/// Size of the tools of a model request.
pub(crate) fn tool_specs_size(tools: &[ToolSpec]) -> u64 {
    let tool_size = |tool: &ToolSpec| {
        let ToolSpec { name, description, parameters } = tool;
        text_size(name.as_str()) + text_size(description) + json_size(parameters)
    };
    tools.iter().map(tool_size).sum()
}
