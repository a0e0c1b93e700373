//! How large what a call brings is.

use capstan_hooks::contracts::ModelCall;
use capstan_protocol::{ChatMessage, Content, ContentPart, JsonObject, KnownPart, ToolCall, ToolSpec};
use serde::Serialize;

/// What stands around the texts of a call: also one that says nothing is written.
const TOOL_CALL_OVERHEAD_BYTES: u64 = 60;

/// Counts what would be written, and keeps none of it.
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

/// A value as JSON. One that cannot be written is larger than anything.
pub(crate) fn json_size(value: &impl Serialize) -> u64 {
    let mut counter = ByteCounter(0);
    serde_json::to_writer(&mut counter, value).map_or(u64::MAX, |()| counter.0)
}

/// A text.
pub(super) fn text_size(text: &str) -> u64 {
    text.len() as u64
}

/// A content, images in it included.
pub(super) fn content_size(content: &Content) -> u64 {
    match content {
        Content::Text(text) => text_size(text),
        Content::Parts(parts) => parts.iter().map(content_part_size).sum(),
    }
}

/// A part of a content.
pub(super) fn content_part_size(part: &ContentPart) -> u64 {
    match part {
        ContentPart::Known(KnownPart::Text { text }) => text_size(text),
        ContentPart::Known(KnownPart::ImageUrl { image_url }) => text_size(&image_url.url),
        ContentPart::Other(part) => json_size(part),
    }
}

/// Tool calls, with all that is written of them. Their texts are not written out for it.
pub(super) fn tool_calls_size(calls: &[ToolCall]) -> u64 {
    let of_call = |call: &ToolCall| {
        let ToolCall { id, kind, function, extra } = call;
        let texts = [id, kind, &function.name, &function.arguments];
        TOOL_CALL_OVERHEAD_BYTES + texts.into_iter().map(|text| text_size(text)).sum::<u64>() + extra_size(extra)
    };
    calls.iter().map(of_call).sum()
}

/// Keys that nearly nothing has.
fn extra_size(extra: &JsonObject) -> u64 {
    if extra.is_empty() { 0 } else { json_size(extra) }
}

/// A request to a model, without its tools. Its text is not written out for it: it is long, and made for every step.
pub(super) fn model_call_size(call: &ModelCall) -> u64 {
    let of_message = |message: &ChatMessage| {
        let ChatMessage { role: _, content, tool_calls, tool_call_id, name, extra } = message;
        let names: u64 = [tool_call_id, name].into_iter().flatten().map(|name| text_size(name)).sum();
        content_size(content) + tool_calls_size(tool_calls) + names + extra_size(extra)
    };
    text_size(&call.system) + call.messages.iter().map(of_message).sum::<u64>()
}

/// Tools that a model is told of.
pub(super) fn tool_specs_size(tools: &[ToolSpec]) -> u64 {
    let of_tool = |tool: &ToolSpec| {
        let ToolSpec { name, description, parameters } = tool;
        text_size(name.as_str()) + text_size(description) + json_size(parameters)
    };
    tools.iter().map(of_tool).sum()
}
