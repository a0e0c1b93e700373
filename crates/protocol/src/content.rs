//! Content of messages: text, or parts in the format of OpenAI chat completions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Artifact, ArtifactId, JsonObject};

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

    /// Text of the content, with a line that names the file in place of each part that is not text.
    pub fn text_with_file_names(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let lines: Vec<String> = parts.iter().map(ContentPart::to_text_line).collect();
                lines.join("\n")
            }
        }
    }

    /// Returns true if the content has a part that is not text, such as an image or a file.
    pub fn has_media(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Parts(parts) => parts.iter().any(|part| part.as_text().is_none()),
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

impl Content {
    /// The content in words: a part that is not text becomes a text in brackets.
    #[must_use]
    pub fn in_words(&self) -> Self {
        match self {
            Self::Text(_) => self.clone(),
            Self::Parts(parts) => Self::Parts(parts.iter().map(ContentPart::in_words).collect()),
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

impl ContentPart {
    /// A part with text as it is, every other part as a text in brackets: its kind, and its name or address if it has
    /// one. Inline content has no address.
    #[must_use]
    pub fn in_words(&self) -> Self {
        let (kind, detail) = match self {
            Self::Known(KnownPart::Text { .. }) => return self.clone(),
            Self::Known(KnownPart::ImageUrl { image_url }) => ("image", Some(image_url.url.as_str())),
            Self::Other(part) => {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or("attachment");
                let content = part.get(kind).and_then(Value::as_object);
                let detail = ["filename", "url"].into_iter().find_map(|key| content?.get(key)?.as_str());
                match kind {
                    "text" => return self.clone(),
                    "input_audio" => ("recording", detail),
                    "input_image" => ("image", part.get("image_url").and_then(Value::as_str)),
                    kind => (kind, detail),
                }
            }
        };
        let detail = detail.filter(|detail| !detail.starts_with("data:"));
        Self::from_text(match detail {
            Some(detail) => format!("[{kind} {detail}]"),
            None => format!("[{kind}]"),
        })
    }
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

    /// Part that refers to an artifact.
    pub fn from_artifact(artifact: &Artifact) -> Self {
        let fields = [("type".to_owned(), "artifact".into()), ("artifact".to_owned(), serde_json::json!(artifact))];
        Self::Other(JsonObject::from_iter(fields))
    }

    /// File part with its content inline, as a `data:` URL.
    pub fn from_file(name: &str, data_url: &str) -> Self {
        let file = serde_json::json!({"filename": name, "file_data": data_url});
        Self::Other(JsonObject::from_iter([("type".to_owned(), "file".into()), ("file".to_owned(), file)]))
    }

    /// Id of the artifact that the part refers to, if any.
    pub fn artifact_id(&self) -> Option<ArtifactId> {
        self.typed_field("artifact")?.get("id")?.as_str().map(ArtifactId::new)
    }

    /// Name of the artifact that the part refers to, if it names no id: the newest of that name that the run created.
    pub fn artifact_name(&self) -> Option<&str> {
        let artifact = self.typed_field("artifact").filter(|artifact| artifact.get("id").is_none())?;
        artifact.get("name")?.as_str()
    }

    /// Returns true if the part refers to an artifact, by its id or its name.
    pub fn names_artifact(&self) -> bool {
        self.artifact_id().is_some() || self.artifact_name().is_some()
    }

    /// Artifact that the part refers to, once the host has completed the reference.
    pub fn artifact(&self) -> Option<Artifact> {
        serde_json::from_value(self.typed_field("artifact")?.clone()).ok()
    }

    /// Returns true if the part refers to a video.
    pub fn is_video(&self) -> bool {
        self.typed_field("video_url").is_some()
    }

    /// Text of the part, or a line that names its image, video or file.
    pub fn to_text_line(&self) -> String {
        if let Some(text) = self.as_text() {
            return text.to_owned();
        }
        if let Self::Known(KnownPart::ImageUrl { image_url }) = self {
            return format!("[image: {}]", describe_address(&image_url.url));
        }
        if let Some(video) = self.typed_field("video_url") {
            return format!("[video: {}]", describe_address(video["url"].as_str().unwrap_or_default()));
        }
        if let Some(artifact) = self.artifact() {
            return format!("[file: {} ({}, {} bytes)]", artifact.name, artifact.media_type, artifact.bytes);
        }
        let name = self.typed_field("file").and_then(|file| file.get("filename")).and_then(serde_json::Value::as_str);
        match (name, self) {
            (Some(name), _) => format!("[file: {name}]"),
            (None, Self::Other(fields)) => {
                format!("[{}]", fields.get("type").and_then(serde_json::Value::as_str).unwrap_or("attachment"))
            }
            (None, Self::Known(_)) => String::new(),
        }
    }

    /// Field of a part of another type that has the name of the type.
    fn typed_field(&self, kind: &str) -> Option<&serde_json::Value> {
        match self {
            Self::Other(fields) if fields.get("type").and_then(serde_json::Value::as_str) == Some(kind) => {
                fields.get(kind)
            }
            Self::Known(_) | Self::Other(_) => None,
        }
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

/// An address, or the media type of a `data:` URL.
fn describe_address(url: &str) -> &str {
    url.strip_prefix("data:").map_or(url, |data| data.split([';', ',']).next().unwrap_or_default())
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
