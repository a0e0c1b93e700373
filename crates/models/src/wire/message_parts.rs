//! Contents, as all wires read them.

use capstan_protocol::{Content, ContentPart, KnownPart};
use serde_json::{Map as JsonMap, Value, json};

/// What stands in the place of a last message that says nothing, which is refused.
pub(super) const EMPTY_MESSAGE_NOTE: &str = "[The message is empty.]";

/// A part of a message, in the terms every wire needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MessagePart<'a> {
    /// Text.
    Text(&'a str),
    /// An image in the request itself.
    InlineImage {
        /// Such as `image/png`.
        media_type: &'a str,
        /// The image in base64.
        data: &'a str,
    },
    /// An image by its address.
    LinkedImage(&'a str),
    /// Something not every wire has a place for, by the name of its kind.
    Other(&'a str),
}

/// The parts of a content.
pub(super) fn read_parts(content: &Content) -> Vec<MessagePart<'_>> {
    match content {
        Content::Text(text) => vec![MessagePart::Text(text)],
        Content::Parts(parts) => parts.iter().map(read_part).collect(),
    }
}

pub(super) fn read_part(part: &ContentPart) -> MessagePart<'_> {
    if let Some(text) = part.as_text() {
        return MessagePart::Text(text);
    }
    match part {
        ContentPart::Known(KnownPart::ImageUrl { image_url }) => read_image(&image_url.url),
        ContentPart::Known(KnownPart::Text { text }) => MessagePart::Text(text),
        ContentPart::Other(part) => match part.get("image_url").and_then(|image| image.get("url")) {
            Some(Value::String(url)) => read_image(url),
            _ => MessagePart::Other(part.get("type").and_then(Value::as_str).unwrap_or("part")),
        },
    }
}

fn read_image(url: &str) -> MessagePart<'_> {
    let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match inline {
        Some((media_type, data)) => MessagePart::InlineImage { media_type, data },
        None => MessagePart::LinkedImage(url),
    }
}

/// What stands in the place of something a provider does not take there, so that the model knows that it was there.
pub(super) fn omission_note(kind: &str) -> String {
    format!("[{kind} left out]")
}

impl MessagePart<'_> {
    /// The part as text: a note where it is none.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Text(text) => (*text).to_owned(),
            Self::InlineImage { .. } | Self::LinkedImage(_) => omission_note("image_url"),
            Self::Other(kind) => omission_note(kind),
        }
    }
}

/// The content as text. Providers take other parts from a user only, and refuse the whole request over one elsewhere.
pub(super) fn content_to_text(content: &Content) -> String {
    match content {
        Content::Text(text) => text.clone(),
        Content::Parts(_) => read_parts(content).iter().map(MessagePart::to_text).collect::<Vec<_>>().join("\n"),
    }
}

/// The arguments of a call as an object. What the model wrote may be no JSON, and a provider refuses anything else.
pub(super) fn arguments_object(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Value::Object(arguments),
        _ if text.trim().is_empty() => Value::Object(JsonMap::new()),
        _ => json!({ "invalid_arguments": text }),
    }
}
