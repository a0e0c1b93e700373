//! Message contents in a form shared by all protocols.

use capstan_protocol::{Content, ContentPart, KnownPart};
use serde_json::{Map as JsonMap, Value, json};

/// Replaces an empty last message, which providers reject.
pub(super) const EMPTY_MESSAGE_NOTE: &str = "[The message is empty.]";

/// Part of a message, classified for all protocols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MessagePart<'a> {
    /// Text.
    Text(&'a str),
    /// Image embedded in the request.
    InlineImage {
        /// Media type, such as `image/png`.
        media_type: &'a str,
        /// Image in base64.
        data: &'a str,
    },
    /// Image by URL.
    LinkedImage(&'a str),
    /// Part that not every protocol can represent, by its type name.
    Other(&'a str),
}

/// Parts of a content.
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

/// Replaces a part that a provider does not accept there, so that the model knows it existed.
pub(super) fn omission_note(kind: &str) -> String {
    format!("[{kind} left out]")
}

impl MessagePart<'_> {
    /// Part as text; a note for anything else.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Text(text) => (*text).to_owned(),
            Self::InlineImage { .. } | Self::LinkedImage(_) => omission_note("image_url"),
            Self::Other(kind) => omission_note(kind),
        }
    }
}

/// Content as text. Providers accept other parts from the user only, and reject the whole request otherwise.
pub(super) fn content_to_text(content: &Content) -> String {
    match content {
        Content::Text(text) => text.clone(),
        Content::Parts(_) => read_parts(content).iter().map(MessagePart::to_text).collect::<Vec<_>>().join("\n"),
    }
}

/// Arguments of a call as an object. Models may write invalid JSON, but providers reject anything except an object.
pub(super) fn arguments_object(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Value::Object(arguments),
        _ if text.trim().is_empty() => Value::Object(JsonMap::new()),
        _ => json!({ "invalid_arguments": text }),
    }
}
