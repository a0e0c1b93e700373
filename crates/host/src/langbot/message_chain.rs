//! Message chains of LangBot queries.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use capstan_protocol::{ContentPart, Timestamp};
use serde::Deserialize;

use super::TextOrNumber;

/// A message as a chain of parts. Part types that runners cannot be shown are rejected.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct MessageChain(Vec<ChainPart>);

#[derive(Debug, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum ChainPart {
    /// Id and time (in seconds) of the message on its platform.
    Source { id: TextOrNumber, time: Option<i64> },
    /// Text.
    Plain { text: String },
    /// A mention of one user.
    At { target: TextOrNumber, display: Option<String> },
    /// A mention of all members.
    AtAll {},
    /// An image, as a URL or in base64.
    Image { url: Option<String>, base64: Option<String> },
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
        for part in self.0 {
            match part {
                ChainPart::Source { id, time } => {
                    message.id = Some(id.to_text());
                    message.time = time.map(|seconds| Timestamp::from_millis(seconds.saturating_mul(1000)));
                }
                ChainPart::Plain { text: more } => text.push_str(&more),
                ChainPart::At { target, display } => {
                    text.push('@');
                    text.push_str(&display.unwrap_or_else(|| target.to_text()));
                    text.push(' ');
                }
                ChainPart::AtAll {} => text.push_str("@all "),
                ChainPart::Image { url: Some(url), base64: None } => {
                    message.contents.push(ContentPart::from_image_url(url));
                }
                ChainPart::Image { url: None, base64: Some(image) } => {
                    message.contents.push(ContentPart::from_image_url(to_data_url(&image)?));
                }
                ChainPart::Image { .. } => return Err("an Image needs either a url or a base64".to_owned()),
            }
        }
        message.text = Some(text).filter(|text| !text.is_empty());
        Ok(message)
    }
}

/// Wraps a base64 image in a data URL, unless it is one already.
fn to_data_url(image: &str) -> Result<String, String> {
    let content = image.split_once(";base64,").map_or(image, |(_, content)| content);
    BASE64.decode(content).map_err(|_| "the base64 of an Image cannot be decoded".to_owned())?;
    Ok(if image.starts_with("data:") { image.to_owned() } else { format!("data:image/png;base64,{image}") })
}
