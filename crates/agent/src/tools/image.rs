//! Images in the formats and sizes that model providers accept.

mod dimensions;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use capstan_protocol::{Content, ContentPart};

/// Maximum size of an image shown to a model.
pub(crate) const MAX_IMAGE_BYTES: u64 = 3 * 1024 * 1024;

/// Longest side that all providers accept.
const MAX_IMAGE_SIDE_PX: u32 = 8000;

/// Detects the media type of an image that providers accept from its first bytes. Not every provider accepts all of
/// them; the wire replaces an unsupported image by a note.
pub(crate) fn media_type(prefix: &[u8]) -> Option<&'static str> {
    let is_webp = prefix.starts_with(b"RIFF") && prefix.get(8..12) == Some(b"WEBP");
    match prefix {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        _ if is_webp => Some("image/webp"),
        _ => None,
    }
}

/// Reason why no provider would accept an image.
enum ImageError {
    TooLarge { width: u32, height: u32 },
    Broken,
}

fn check_image(kind: &str, bytes: &[u8]) -> Result<(), ImageError> {
    match dimensions::read_dimensions(kind, bytes) {
        Some((width, height)) if width.max(height) > MAX_IMAGE_SIDE_PX => Err(ImageError::TooLarge { width, height }),
        Some((1.., 1..)) => Ok(()),
        _ => Err(ImageError::Broken),
    }
}

/// Normalizes the `data:` URL of an image received with an event: the media type is derived from the bytes, whatever
/// the URL claims. Returns the reason if no provider would accept the image, since sending it would fail this run and
/// all later ones.
pub(crate) fn normalize_data_url(url: &str) -> Result<String, String> {
    let (head, data) = url.split_once(',').unwrap_or_default();
    let bytes = STANDARD.decode(data.trim()).ok().filter(|_| head.to_ascii_lowercase().ends_with(";base64"));
    let Some(bytes) = bytes else { return Err("it cannot be decoded".to_owned()) };
    if bytes.len() as u64 > MAX_IMAGE_BYTES {
        return Err(format!("it has {} bytes, but models accept at most {MAX_IMAGE_BYTES}", bytes.len()));
    }
    let Some(kind) = media_type(&bytes) else {
        return Err("it is neither PNG, JPEG, GIF nor WebP".to_owned());
    };
    match check_image(kind, &bytes) {
        Ok(()) => Ok(format!("data:{kind};base64,{}", data.trim())),
        Err(ImageError::TooLarge { width, height }) => {
            Err(format!("it has {width} x {height} pixels, but models accept at most {MAX_IMAGE_SIDE_PX} per side"))
        }
        Err(ImageError::Broken) => Err(format!("it starts like {kind}, but is broken")),
    }
}

/// Returns an image with a caption, or the reason why no provider would accept it, since sending it would fail the run.
pub(super) fn image_content(name: &str, kind: &str, bytes: &[u8]) -> Result<Content, String> {
    match check_image(kind, bytes) {
        Ok(()) => {}
        Err(ImageError::TooLarge { width, height }) => {
            let size = format!("an image of {width} x {height} pixels");
            return Err(format!(
                "{name} is {size}, but models accept at most {MAX_IMAGE_SIDE_PX} per side; scale it down first"
            ));
        }
        Err(ImageError::Broken) => {
            return Err(format!("{name} starts like {kind}, but is broken; inspect it with `file` or `xxd` in bash"));
        }
    }
    let caption = format!("{name}: {kind}, {} bytes", bytes.len());
    let url = format!("data:{kind};base64,{}", STANDARD.encode(bytes));
    Ok(Content::Parts(vec![ContentPart::from_text(caption), ContentPart::from_image_url(url)]))
}

#[cfg(test)]
mod tests {
    use super::image_content;

    #[test]
    fn a04_unacceptable_image_is_refused_with_the_reason() {
        let png = |width: u32, height: u32| {
            let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
            [b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".as_slice(), &size, b"\x08\x02\0\0\0"].concat()
        };
        assert!(image_content("a.png", "image/png", &png(8000, 1)).is_ok());
        let large = image_content("a.png", "image/png", &png(20_000, 10)).unwrap_err();
        assert!(large.contains("20000 x 10 pixels") && large.contains("at most 8000"), "{large}");
        for (kind, bytes) in [
            ("image/png", b"\x89PNG\r\n\x1a\nand then something else".to_vec()),
            ("image/png", png(0, 10)),
            ("image/gif", b"GIF89a".to_vec()),
            ("image/jpeg", b"\xff\xd8\xff\xe0".to_vec()),
            ("image/webp", b"RIFF\x04\0\0\0WEBP".to_vec()),
        ] {
            let broken = image_content("a", kind, &bytes).unwrap_err();
            assert!(broken.contains("is broken"), "{kind}: {broken}");
        }
    }
}
