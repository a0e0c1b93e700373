//! Images, as models take them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use capstan_protocol::{Content, ContentPart};

/// The largest image that is shown to a model.
pub(super) const MAX_BYTES: u64 = 3 * 1024 * 1024;

/// The media type of an image that providers take, told from how it begins. Not each takes all: what is sent to one that
/// does not has a note in its place.
pub(super) fn kind(begin: &[u8]) -> Option<&'static str> {
    let is_webp = begin.starts_with(b"RIFF") && begin.get(8..12) == Some(b"WEBP");
    match begin {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        _ if is_webp => Some("image/webp"),
        _ => None,
    }
}

/// An image with what it is.
pub(super) fn content(name: &str, kind: &str, bytes: &[u8]) -> Content {
    let told = format!("{name}: {kind}, {} bytes", bytes.len());
    let url = format!("data:{kind};base64,{}", STANDARD.encode(bytes));
    Content::Parts(vec![ContentPart::text(told), ContentPart::image(url)])
}
