//! Message chains of LangBot queries.
//!
//! A chain holds one component per part of a message. Text, mentions and quotes become text; images, files and voice
//! messages that come with their content become content parts. Every other component becomes a short text in brackets,
//! so that the runner knows that there was something it cannot see.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use capstan_protocol::{ContentPart, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::TextOrNumber;

/// Maximum depth of quoted and forwarded messages.
const MAX_CHAIN_DEPTH: usize = 4;

/// A message as a chain of components. LangBot writes every field of a component, empty ones included.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct MessageChain(Vec<Value>);

/// Components with a meaning of their own. Further fields of a component are ignored: they differ between platforms.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
enum ChainComponent {
    /// Id and time (in seconds) of the message on its platform.
    Source { id: TextOrNumber, time: Option<f64> },
    /// Text.
    Plain { text: String },
    /// A mention of one user.
    At { target: TextOrNumber, display: Option<String> },
    /// A mention of all members.
    AtAll {},
    /// An image.
    Image(MediaComponent),
    /// A recording.
    Voice(MediaComponent),
    /// A file.
    File(MediaComponent),
    /// A quoted message.
    Quote { sender_id: Option<TextOrNumber>, origin: MessageChain },
    /// A forwarded conversation.
    Forward { node_list: Vec<ForwardNode> },
    /// An emoticon of the platform.
    Face { face_name: Option<String> },
    /// A component that LangBot itself does not know.
    Unknown { text: Option<String> },
}

/// Types of [`ChainComponent`]; every other type is shown by its name.
const COMPONENT_TYPES: [&str; 11] =
    ["Source", "Plain", "At", "AtAll", "Image", "Voice", "File", "Quote", "Forward", "Face", "Unknown"];

/// Content of a component, inline or by URL. A path is local to LangBot and cannot be read here.
#[derive(Debug, Deserialize)]
struct MediaComponent {
    url: Option<String>,
    base64: Option<String>,
    name: Option<String>,
}

/// One message of a forwarded conversation.
#[derive(Debug, Deserialize)]
struct ForwardNode {
    sender_id: Option<TextOrNumber>,
    sender_name: Option<String>,
    message_chain: Option<MessageChain>,
}

/// The content of a query, in the terms of an [`Event`](capstan_protocol::Event).
#[derive(Debug, Default)]
pub(super) struct QueryMessage {
    pub(super) text: Option<String>,
    pub(super) contents: Vec<ContentPart>,
    /// Id of the message on its platform.
    pub(super) id: Option<String>,
    pub(super) time: Option<Timestamp>,
}

impl QueryMessage {
    pub(super) fn from_text(text: String) -> Self {
        Self { text: Some(text), ..Self::default() }
    }
}

impl MessageChain {
    /// Converts the chain, or returns the reason why it cannot be converted.
    pub(super) fn into_message(self) -> Result<QueryMessage, String> {
        let mut message = QueryMessage::default();
        let mut text = String::new();
        self.append_to(&mut message, &mut text, 0)?;
        message.text = Some(text).filter(|text| !text.trim().is_empty());
        Ok(message)
    }

    /// Appends the components to the text and the contents of a message. Only the outermost chain has the id and the
    /// time of the message.
    fn append_to(self, message: &mut QueryMessage, text: &mut String, depth: usize) -> Result<(), String> {
        if depth > MAX_CHAIN_DEPTH {
            text.push_str("[further quotes]");
            return Ok(());
        }
        for component in self.0 {
            match parse_component(component)? {
                ParsedComponent::Known(ChainComponent::Source { id, time }) if depth == 0 => {
                    message.id = Some(id.to_text());
                    message.time = time.map(timestamp_from_seconds);
                }
                ParsedComponent::Known(ChainComponent::Source { .. }) => {}
                ParsedComponent::Known(ChainComponent::Plain { text: more }) => text.push_str(&more),
                ParsedComponent::Known(ChainComponent::At { target, display }) => {
                    text.push('@');
                    text.push_str(&non_empty(display).unwrap_or_else(|| target.to_text()));
                    text.push(' ');
                }
                ParsedComponent::Known(ChainComponent::AtAll {}) => text.push_str("@all "),
                ParsedComponent::Known(ChainComponent::Image(media)) => {
                    append_media(media, MediaKind::Image, message, text)?;
                }
                ParsedComponent::Known(ChainComponent::Voice(media)) => {
                    append_media(media, MediaKind::Voice, message, text)?;
                }
                ParsedComponent::Known(ChainComponent::File(media)) => {
                    append_media(media, MediaKind::File, message, text)?;
                }
                ParsedComponent::Known(ChainComponent::Quote { sender_id, origin }) => {
                    append_quote(sender_id.map(|id| id.to_text()), origin, message, text, depth)?;
                }
                ParsedComponent::Known(ChainComponent::Forward { node_list }) => {
                    for node in node_list {
                        let sender = non_empty(node.sender_name).or(node.sender_id.map(|id| id.to_text()));
                        let chain = node.message_chain.unwrap_or(Self(Vec::new()));
                        append_quote(sender, chain, message, text, depth)?;
                    }
                }
                ParsedComponent::Known(ChainComponent::Face { face_name }) => {
                    append_placeholder(text, &non_empty(face_name).unwrap_or_else(|| "face".to_owned()));
                }
                ParsedComponent::Known(ChainComponent::Unknown { text: more }) => {
                    let detail = non_empty(more).map(|more| format!(": {more}")).unwrap_or_default();
                    append_placeholder(text, &format!("unknown content{detail}"));
                }
                ParsedComponent::Other(kind) => append_placeholder(text, &kind),
            }
        }
        Ok(())
    }
}

enum ParsedComponent {
    Known(ChainComponent),
    /// Type of a component that has no meaning here.
    Other(String),
}

fn parse_component(component: Value) -> Result<ParsedComponent, String> {
    let Some(kind) = component.get("type").and_then(Value::as_str).map(str::to_owned) else {
        return Err("a component of message_chain has no type".to_owned());
    };
    if !COMPONENT_TYPES.contains(&kind.as_str()) {
        return Ok(ParsedComponent::Other(kind));
    }
    serde_json::from_value(component)
        .map(ParsedComponent::Known)
        .map_err(|error| format!("the component {kind} of message_chain is not valid: {error}"))
}

/// Appends a quoted message as lines that begin with `>`.
fn append_quote(
    sender: Option<String>,
    chain: MessageChain,
    message: &mut QueryMessage,
    text: &mut String,
    depth: usize,
) -> Result<(), String> {
    let mut quoted = String::new();
    chain.append_to(message, &mut quoted, depth + 1)?;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let sender = sender.map(|sender| format!("{sender}: ")).unwrap_or_default();
    for line in format!("{sender}{}", quoted.trim_end()).lines() {
        text.push_str("> ");
        text.push_str(line);
        text.push('\n');
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum MediaKind {
    Image,
    Voice,
    File,
}

impl MediaKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Voice => "voice message",
            Self::File => "file",
        }
    }
}

/// Appends media as a content part if its content can be read here, and otherwise as a placeholder in the text.
fn append_media(
    media: MediaComponent,
    kind: MediaKind,
    message: &mut QueryMessage,
    text: &mut String,
) -> Result<(), String> {
    let name = non_empty(media.name);
    let inline = non_empty(media.base64).map(|data| InlineContent::parse(&data, kind)).transpose()?;
    let url = non_empty(media.url);
    let part = match (kind, inline, &url) {
        (MediaKind::Image, Some(inline), _) => {
            let media_type = inline.media_type.unwrap_or_else(|| "image/png".to_owned());
            Some(ContentPart::from_image_url(format!("data:{media_type};base64,{}", inline.base64)))
        }
        (MediaKind::Image, None, Some(url)) => Some(ContentPart::from_image_url(url.clone())),
        (MediaKind::Voice, Some(inline), _) => inline
            .audio_format()
            .map(|format| other_part("input_audio", json!({"data": inline.base64, "format": format}))),
        (MediaKind::File, Some(inline), _) => {
            let media_type = inline.media_type.unwrap_or_else(|| "application/octet-stream".to_owned());
            let data = format!("data:{media_type};base64,{}", inline.base64);
            Some(other_part("file", json!({"filename": name.as_deref().unwrap_or("file"), "file_data": data})))
        }
        (_, None, _) => None,
    };
    if let Some(part) = part {
        message.contents.push(part);
    } else {
        let words: Vec<String> = [Some(kind.name().to_owned()), name, url].into_iter().flatten().collect();
        append_placeholder(text, &words.join(" "));
    }
    Ok(())
}

/// A part of a type that is named after its only field.
fn other_part(kind: &str, content: Value) -> ContentPart {
    let fields = [("type".to_owned(), Value::from(kind)), (kind.to_owned(), content)];
    ContentPart::Other(fields.into_iter().collect())
}

/// Base64 content, with the media type of its data URL.
struct InlineContent {
    base64: String,
    media_type: Option<String>,
}

impl InlineContent {
    fn parse(data: &str, kind: MediaKind) -> Result<Self, String> {
        let (prefix, base64) = data.split_once(";base64,").map_or((None, data), |(prefix, rest)| (Some(prefix), rest));
        BASE64.decode(base64).map_err(|_| format!("the base64 of a {} cannot be decoded", kind.name()))?;
        let media_type = prefix.and_then(|prefix| prefix.strip_prefix("data:")).map(str::to_owned);
        Ok(Self { base64: base64.to_owned(), media_type: non_empty(media_type) })
    }

    /// Format of a recording that models accept.
    fn audio_format(&self) -> Option<&'static str> {
        match self.media_type.as_deref()? {
            "audio/wav" | "audio/x-wav" | "audio/wave" => Some("wav"),
            "audio/mpeg" | "audio/mp3" => Some("mp3"),
            _ => None,
        }
    }
}

/// LangBot writes an absent text as an empty one.
fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn append_placeholder(text: &mut String, content: &str) {
    text.push('[');
    text.push_str(content);
    text.push(']');
}

#[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
fn timestamp_from_seconds(seconds: f64) -> Timestamp {
    Timestamp::from_millis((seconds * 1000.0) as i64)
}
