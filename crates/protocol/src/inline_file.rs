//! Files whose content is inside a message part.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::{ContentPart, KnownPart};

/// Media type of a file that does not name one.
const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";
/// Media type of a `data:` URL that names none.
const DATA_URL_MEDIA_TYPE: &str = "text/plain";
/// Maximum length of a file name, in bytes.
const MAX_FILE_NAME_LEN: usize = 255;
/// Longest media subtype that becomes a file name extension.
const MAX_EXTENSION_LEN: usize = 5;

/// File whose content is inside a message part: an image, a recording, a video or another file.
///
/// ```
/// use capstan_protocol::ContentPart;
///
/// let part = ContentPart::from_image_url("data:image/png;base64,AAEC");
/// let file = part.inline_file().unwrap();
/// assert_eq!((file.name.as_str(), file.media_type.as_str()), ("image.png", "image/png"));
/// assert_eq!(file.content, [0, 1, 2]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineFile {
    /// Name without a path: that of the sender, or the kind of the part.
    pub name: String,
    /// Media type, as the sender claims it.
    pub media_type: String,
    /// The content.
    pub content: Vec<u8>,
}

impl ContentPart {
    /// The file inside the part. `None` for text, for a part with an address, and if the content cannot be decoded.
    pub fn inline_file(&self) -> Option<InlineFile> {
        let fields = match self {
            Self::Known(KnownPart::Text { .. }) => return None,
            Self::Known(KnownPart::ImageUrl { image_url }) => return from_data_url("image", &image_url.url),
            Self::Other(fields) => fields,
        };
        let kind = fields.get("type")?.as_str()?;
        match kind {
            "image_url" | "input_image" => {
                let image = fields.get("image_url")?;
                from_data_url("image", image.as_str().or_else(|| image.get("url")?.as_str())?)
            }
            "video_url" => from_data_url("video", fields.get(kind)?.get("url")?.as_str()?),
            "input_audio" => {
                let audio = fields.get(kind)?;
                let media_type = match audio.get("format").and_then(Value::as_str) {
                    Some("mp3") => "audio/mpeg".to_owned(),
                    Some(format) => format!("audio/{format}"),
                    None => UNKNOWN_MEDIA_TYPE.to_owned(),
                };
                let content = BASE64.decode(audio.get("data")?.as_str()?.trim()).ok()?;
                Some(InlineFile { name: default_name("audio", &media_type), media_type, content })
            }
            "file" => {
                let file = fields.get(kind)?;
                let data = file.get("file_data")?.as_str()?;
                let name = file.get("filename").and_then(Value::as_str).and_then(plain_name);
                let mut found = match from_data_url(kind, data) {
                    Some(found) => found,
                    None => InlineFile {
                        name: kind.to_owned(),
                        media_type: UNKNOWN_MEDIA_TYPE.to_owned(),
                        content: BASE64.decode(data.trim()).ok()?,
                    },
                };
                found.name = name.unwrap_or(found.name);
                Some(found)
            }
            _ => None,
        }
    }
}

/// Reads a `data:` URL: base64, or text with percent escapes.
fn from_data_url(kind: &str, url: &str) -> Option<InlineFile> {
    let scheme = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:"))?;
    let (head, data) = url[scheme.len()..].split_once(',')?;
    let mut parameters = head.split(';');
    let media_type = parameters.next().map(str::trim).filter(|kind| !kind.is_empty()).unwrap_or(DATA_URL_MEDIA_TYPE);
    let is_base64 = parameters.next_back().is_some_and(|last| last.trim().eq_ignore_ascii_case("base64"));
    let content = if is_base64 { BASE64.decode(data.trim()).ok()? } else { decode_percent(data)? };
    let media_type = media_type.to_ascii_lowercase();
    Some(InlineFile { name: default_name(kind, &media_type), media_type, content })
}

fn decode_percent(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        let digits = digits.iter().all(u8::is_ascii_hexdigit).then(|| std::str::from_utf8(&digits))?;
        decoded.push(u8::from_str_radix(digits.ok()?, 16).ok()?);
    }
    Some(decoded)
}

/// Name of a file without one: its kind, with the extension of its media type.
fn default_name(kind: &str, media_type: &str) -> String {
    let extension = match media_type.split_once('/').map(|(_, subtype)| subtype) {
        Some("jpeg") => "jpg",
        Some("mpeg") if kind == "audio" => "mp3",
        Some("plain") => "txt",
        Some(subtype) => subtype,
        None => "",
    };
    let is_plain = (1..=MAX_EXTENSION_LEN).contains(&extension.len())
        && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_plain { format!("{kind}.{extension}") } else { kind.to_owned() }
}

/// The last part of a path, without control characters and leading dots. `None` if nothing is left.
fn plain_name(name: &str) -> Option<String> {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = name.chars().filter(|char| !char.is_control()).collect();
    let name = name.trim_start_matches('.').trim();
    let name = &name[..name.floor_char_boundary(MAX_FILE_NAME_LEN)];
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::ContentPart;

    fn inline(part: Value) -> Option<(String, String, Vec<u8>)> {
        let part: ContentPart = serde_json::from_value(part).unwrap();
        part.inline_file().map(|file| (file.name, file.media_type, file.content))
    }

    fn file(name: &str, media_type: &str, content: &[u8]) -> (String, String, Vec<u8>) {
        (name.to_owned(), media_type.to_owned(), content.to_vec())
    }

    #[test]
    fn g14_every_form_of_inline_content_is_a_file() {
        let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}});
        let named = |name: &str, data: &str| json!({"type": "file", "file": {"filename": name, "file_data": data}});
        for (part, expected) in [
            (image("data:image/jpeg;base64,AAEC"), file("image.jpg", "image/jpeg", &[0, 1, 2])),
            (image("DATA:image/PNG;BASE64,AAEC"), file("image.png", "image/png", &[0, 1, 2])),
            (image("data:image/svg+xml;utf8,%3Csvg/%3e"), file("image", "image/svg+xml", b"<svg/>")),
            (image("data:,a%20b"), file("image.txt", "text/plain", b"a b")),
            (
                json!({"type": "input_image", "image_url": "data:image/gif;base64,AA=="}),
                file("image.gif", "image/gif", &[0]),
            ),
            (
                json!({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AA=="}}),
                file("video.mp4", "video/mp4", &[0]),
            ),
            (
                json!({"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}),
                file("audio.mp3", "audio/mpeg", &[0]),
            ),
            (
                json!({"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}),
                file("audio.wav", "audio/wav", &[0]),
            ),
            (named("report.csv", "data:text/csv;base64,YSxi"), file("report.csv", "text/csv", b"a,b")),
            (named("../../.a\u{7}b/.c\nd", "YSxi"), file("cd", "application/octet-stream", b"a,b")),
            (named("..", "data:text/plain;base64,YQ=="), file("file.txt", "text/plain", b"a")),
            (json!({"type": "file", "file": {"file_data": "YQ=="}}), file("file", "application/octet-stream", b"a")),
        ] {
            assert_eq!(inline(part.clone()), Some(expected), "{part}");
        }
    }

    #[test]
    fn g14_text_addresses_and_unreadable_content_are_no_file() {
        for part in [
            json!({"type": "text", "text": "data:image/png;base64,AA=="}),
            json!({"type": "image_url", "image_url": {"url": "https://images.example/a.png"}}),
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}),
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64"}}),
            json!({"type": "image_url", "image_url": {"url": "data:text/plain,%4"}}),
            json!({"type": "image_url", "image_url": {"url": "data:text/plain,%+1"}}),
            json!({"type": "file", "file": {"file_id": "f-1"}}),
            json!({"type": "artifact", "artifact": {"id": "run-1.1"}}),
        ] {
            assert_eq!(inline(part.clone()), None, "{part}");
        }
    }
}
