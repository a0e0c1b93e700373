//! Content of messages: text, or parts in the format of OpenAI chat completions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::JsonObject;

/// Content of a message: plain text or a list of parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "content must be a string or a list of parts, which are objects")]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Text, images and other parts, in order.
    Parts(Vec<ContentPart>),
}

impl Content {
    /// Text of the content; parts that are not text are omitted, the others are joined by line breaks.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts: Vec<&str> = parts.iter().filter_map(ContentPart::as_text).collect();
                texts.join("\n")
            }
        }
    }

    /// Returns true if the content has neither text nor parts.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
        }
    }
}

impl Default for Content {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// One part of a message. Parts of unknown types are preserved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a part must be an object, such as {\"type\": \"text\", \"text\": \"...\"}")]
pub enum ContentPart {
    /// Part of a known type.
    Known(KnownPart),
    /// Part of another type, or a known part with further fields.
    Other(JsonObject),
}

/// Parts that every provider client supports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum KnownPart {
    /// Text.
    Text {
        /// The text itself.
        text: String,
    },
    /// An image by URL, `data:` URLs included.
    ImageUrl {
        /// URL of the image.
        image_url: ImageUrl,
    },
}

/// URL of an image and the resolution at which a model reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageUrl {
    /// `https:` or `data:` URL.
    pub url: String,
    /// `low`, `high` or `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl ContentPart {
    /// Text part.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::Known(KnownPart::Text { text: text.into() })
    }

    /// Image part.
    pub fn from_image_url(url: impl Into<String>) -> Self {
        Self::Known(KnownPart::ImageUrl { image_url: ImageUrl { url: url.into(), detail: None } })
    }

    /// Text of the part, if it has any.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Known(KnownPart::Text { text }) => Some(text),
            Self::Known(KnownPart::ImageUrl { .. }) => None,
            Self::Other(part) => part.get("text").and_then(serde_json::Value::as_str),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Content, ContentPart};
    use serde_json::json;

    #[test]
    fn unknown_parts_and_fields_survive_a_round_trip() {
        let wire = json!([
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            {"type": "text", "text": "cached", "cache_control": {"type": "ephemeral"}},
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
        ]);
        let content: Content = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(serde_json::to_value(&content).unwrap(), wire);
        assert_eq!(content.text(), "look\ncached");
        assert!(!Content::Parts(vec![ContentPart::from_image_url("x")]).is_empty());
    }
}
