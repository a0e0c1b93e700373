//! How large what a call brings is.

use capstan_hooks::contracts::ModelCall;
use capstan_protocol::{ChatMessage, Content, ContentPart, KnownPart, Map, ToolCall, ToolSpec};
use serde::Serialize;

/// What stands around the texts of a call: also one that says nothing is written.
const AROUND_CALL: u64 = 60;

/// Counts what would be written, and keeps none of it.
struct Counter(u64);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A value as JSON. One that cannot be written is larger than anything.
pub(crate) fn of_json(value: &impl Serialize) -> u64 {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).map_or(u64::MAX, |()| counter.0)
}

/// A text.
pub(super) fn of_text(text: &str) -> u64 {
    text.len() as u64
}

/// A content, images in it included.
pub(super) fn of_content(content: &Content) -> u64 {
    match content {
        Content::Text(text) => of_text(text),
        Content::Parts(parts) => parts.iter().map(of_part).sum(),
    }
}

/// A part of a content.
pub(super) fn of_part(part: &ContentPart) -> u64 {
    match part {
        ContentPart::Known(KnownPart::Text { text }) => of_text(text),
        ContentPart::Known(KnownPart::ImageUrl { image_url }) => of_text(&image_url.url),
        ContentPart::Other(part) => of_json(part),
    }
}

/// Tool calls, with all that is written of them. Their texts are not written out for it.
pub(super) fn of_calls(calls: &[ToolCall]) -> u64 {
    let of_call = |call: &ToolCall| {
        let ToolCall { id, kind, function, extra } = call;
        let texts = [id, kind, &function.name, &function.arguments];
        AROUND_CALL + texts.into_iter().map(|text| of_text(text)).sum::<u64>() + of_extra(extra)
    };
    calls.iter().map(of_call).sum()
}

/// Keys that nearly nothing has.
fn of_extra(extra: &Map) -> u64 {
    if extra.is_empty() { 0 } else { of_json(extra) }
}

/// A request to a model, without its tools. Its text is not written out for it: it is long, and made for every step.
pub(super) fn of_model_call(call: &ModelCall) -> u64 {
    let of_message = |message: &ChatMessage| {
        let ChatMessage { role: _, content, tool_calls, tool_call_id, name, extra } = message;
        let names: u64 = [tool_call_id, name].into_iter().flatten().map(|name| of_text(name)).sum();
        of_content(content) + of_calls(tool_calls) + names + of_extra(extra)
    };
    of_text(&call.system) + call.messages.iter().map(of_message).sum::<u64>()
}

/// Tools that a model is told of.
pub(super) fn of_tools(tools: &[ToolSpec]) -> u64 {
    let of_tool = |tool: &ToolSpec| {
        let ToolSpec { name, description, parameters } = tool;
        of_text(name.as_str()) + of_text(description) + of_json(parameters)
    };
    tools.iter().map(of_tool).sum()
}
