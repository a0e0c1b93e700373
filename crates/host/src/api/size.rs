//! How large what a call brings is.

use capstan_hooks::contracts::ModelCall;
use capstan_protocol::{Content, ContentPart, KnownPart, ToolCall};
use serde::Serialize;

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
        Content::Parts(parts) => parts
            .iter()
            .map(|part| match part {
                ContentPart::Known(KnownPart::Text { text }) => of_text(text),
                ContentPart::Known(KnownPart::ImageUrl { image_url }) => of_text(&image_url.url),
                ContentPart::Other(part) => of_json(part),
            })
            .sum(),
    }
}

/// Tool calls.
pub(super) fn of_calls(calls: &[ToolCall]) -> u64 {
    calls.iter().map(|call| (call.function.name.len() + call.function.arguments.len()) as u64).sum()
}

/// A request to a model. Its text is not written out for it: it is long, and made for every step.
pub(super) fn of_model_call(call: &ModelCall) -> u64 {
    let messages = call.messages.iter().map(|message| of_content(&message.content) + of_calls(&message.tool_calls));
    let tools = call.tools.iter().map(|tool| of_text(&tool.description) + of_json(&tool.parameters));
    of_text(&call.system) + messages.sum::<u64>() + tools.sum::<u64>()
}
