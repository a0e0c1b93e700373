//! Images, as models take them.

mod dimensions;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use capstan_protocol::{Content, ContentPart};

/// The largest image that is shown to a model.
pub(crate) const MAX_IMAGE_BYTES: u64 = 3 * 1024 * 1024;

/// The longest side that every provider takes.
const MAX_IMAGE_SIDE_PX: u32 = 8000;

/// The media type of an image that providers take, told from how it begins. Not each takes all: what is sent to one that
/// does not has a note in its place.
pub(crate) fn media_type(begin: &[u8]) -> Option<&'static str> {
    let is_webp = begin.starts_with(b"RIFF") && begin.get(8..12) == Some(b"WEBP");
    match begin {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        _ if is_webp => Some("image/webp"),
        _ => None,
    }
}

/// Why no provider would take an image.
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

/// The address of an image that came with an event, where it holds the image itself, as providers take it: with what kind
/// of image it is, whatever it says. Or why no provider would take it, which would end this run and those that follow.
pub(crate) fn normalize_data_url(address: &str) -> Result<String, String> {
    let (head, data) = address.split_once(',').unwrap_or_default();
    let bytes = STANDARD.decode(data.trim()).ok().filter(|_| head.to_ascii_lowercase().ends_with(";base64"));
    let Some(bytes) = bytes else { return Err("it cannot be read".to_owned()) };
    if bytes.len() as u64 > MAX_IMAGE_BYTES {
        return Err(format!("it has {} bytes, and a model takes at most {MAX_IMAGE_BYTES}", bytes.len()));
    }
    let Some(kind) = media_type(&bytes) else {
        return Err("it is neither PNG, JPEG, GIF nor WebP".to_owned());
    };
    match check_image(kind, &bytes) {
        Ok(()) => Ok(format!("data:{kind};base64,{}", data.trim())),
        Err(ImageError::TooLarge { width, height }) => {
            Err(format!("it has {width} x {height} pixels, and a model takes at most {MAX_IMAGE_SIDE_PX} on a side"))
        }
        Err(ImageError::Broken) => Err(format!("it begins as {kind} does, but is broken")),
    }
}

/// An image with what it is; or why no provider would take it, which would end the run.
pub(super) fn image_content(name: &str, kind: &str, bytes: &[u8]) -> Result<Content, String> {
    match check_image(kind, bytes) {
        Ok(()) => {}
        Err(ImageError::TooLarge { width, height }) => {
            let size = format!("an image of {width} x {height} pixels");
            return Err(format!(
                "{name} is {size}, and a model takes at most {MAX_IMAGE_SIDE_PX} on a side; make it smaller first"
            ));
        }
        Err(ImageError::Broken) => {
            return Err(format!("{name} begins as {kind} does, but is broken; `file` or `xxd` in bash can look at it"));
        }
    }
    let told = format!("{name}: {kind}, {} bytes", bytes.len());
    let url = format!("data:{kind};base64,{}", STANDARD.encode(bytes));
    Ok(Content::Parts(vec![ContentPart::text(told), ContentPart::image(url)]))
}

#[cfg(test)]
mod tests {
    use super::image_content;

    #[test]
    fn a04_an_image_that_no_provider_takes_is_told_in_words() {
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
