//! What a query says.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use capstan_protocol::{ContentPart, Timestamp};
use serde::Deserialize;

use super::TextOrNumber;

/// A message as a chain of parts. One that this host cannot show its runners is refused.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct MessageChain(Vec<ChainPart>);

#[derive(Debug, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum ChainPart {
    /// Where the message stands at its platform; the time is in seconds.
    Source { id: TextOrNumber, time: Option<i64> },
    /// Text.
    Plain { text: String },
    /// Somebody is mentioned.
    At { target: TextOrNumber, display: Option<String> },
    /// Everybody is mentioned.
    AtAll {},
    /// An image, at an address or in base64.
    Image { url: Option<String>, base64: Option<String> },
}

/// What a query says, as an event has it.
#[derive(Debug, Default)]
pub(super) struct QueryMessage {
    pub(super) text: Option<String>,
    pub(super) contents: Vec<ContentPart>,
    /// The message at its platform.
    pub(super) id: Option<String>,
    pub(super) time: Option<Timestamp>,
}

impl QueryMessage {
    pub(super) fn from_text(text: String) -> Self {
        Self { text: Some(text), ..Self::default() }
    }
}

impl MessageChain {
    /// What it says, or what is wrong with it.
    pub(super) fn into_message(self) -> Result<QueryMessage, String> {
        let mut said = QueryMessage::default();
        let mut text = String::new();
        for part in self.0 {
            match part {
                ChainPart::Source { id, time } => {
                    said.id = Some(id.to_text());
                    said.time = time.map(|seconds| Timestamp::from_millis(seconds.saturating_mul(1000)));
                }
                ChainPart::Plain { text: more } => text.push_str(&more),
                ChainPart::At { target, display } => {
                    text.push('@');
                    text.push_str(&display.unwrap_or_else(|| target.to_text()));
                    text.push(' ');
                }
                ChainPart::AtAll {} => text.push_str("@all "),
                ChainPart::Image { url: Some(url), base64: None } => said.contents.push(ContentPart::image(url)),
                ChainPart::Image { url: None, base64: Some(image) } => {
                    said.contents.push(ContentPart::image(to_data_url(&image)?));
                }
                ChainPart::Image { .. } => return Err("an Image has either a url or a base64".to_owned()),
            }
        }
        said.text = Some(text).filter(|text| !text.is_empty());
        Ok(said)
    }
}

/// An image as an address that holds it. Some write it so already.
fn to_data_url(image: &str) -> Result<String, String> {
    let content = image.split_once(";base64,").map_or(image, |(_, content)| content);
    BASE64.decode(content).map_err(|_| "the base64 of an Image cannot be read".to_owned())?;
    Ok(if image.starts_with("data:") { image.to_owned() } else { format!("data:image/png;base64,{image}") })
}
