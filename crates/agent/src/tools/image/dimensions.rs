//! Dimensions of an image, read from its header.
//!
//! A broken image must be refused here: a provider would reject it, and with it every later request of the session. The
//! crate `imagesize` (0.15) is not used because it accepts such images: it does not check the PNG and VP8 headers, takes
//! the scaling bits of VP8 for part of the size, and fails on JPEG fill bytes.

/// Returns width and height in pixels, or `None` if the data ends before them.
pub(super) fn read_dimensions(kind: &str, bytes: &[u8]) -> Option<(u32, u32)> {
    match kind {
        "image/png" => png_dimensions(bytes),
        "image/gif" => gif_dimensions(bytes),
        "image/jpeg" => jpeg_dimensions(bytes),
        "image/webp" => webp_dimensions(bytes),
        _ => None,
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

fn png_dimensions(bytes: &[u8]) -> Option<(u32, u32)> {
    let big = |offset| bytes_at(bytes, offset).map(u32::from_be_bytes);
    if bytes.get(8..16)? != b"\0\0\0\x0dIHDR" {
        return None;
    }
    Some((big(16)?, big(20)?))
}

fn gif_dimensions(bytes: &[u8]) -> Option<(u32, u32)> {
    let little = |offset| bytes_at(bytes, offset).map(u16::from_le_bytes).map(u32::from);
    Some((little(6)?, little(8)?))
}

/// Finds the first frame header, after any number of segments.
fn jpeg_dimensions(bytes: &[u8]) -> Option<(u32, u32)> {
    let big = |offset| bytes_at(bytes, offset).map(u16::from_be_bytes);
    let mut offset = 2;
    loop {
        let [0xff, marker] = bytes_at(bytes, offset)? else { return None };
        match marker {
            // Fill bytes before a marker.
            0xff => offset += 1,
            // Markers without a length.
            0x01 | 0xd0..=0xd7 => offset += 2,
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some((big(offset + 7)?.into(), big(offset + 5)?.into()));
            }
            // Image data or its end, without a frame header.
            0xd8..=0xda => return None,
            _ => offset += 2 + usize::from(big(offset + 2)?.max(2)),
        }
    }
}

/// Reads the dimensions of any of the three WebP formats.
fn webp_dimensions(bytes: &[u8]) -> Option<(u32, u32)> {
    const WEBP_SIDE_MASK: u32 = (1 << 14) - 1;
    match &bytes_at(bytes, 12)? {
        b"VP8 " if bytes_at(bytes, 23)? == [0x9d, 0x01, 0x2a] => {
            let little = |offset| bytes_at(bytes, offset).map(u16::from_le_bytes).map(u32::from);
            Some((little(26)? & WEBP_SIDE_MASK, little(28)? & WEBP_SIDE_MASK))
        }
        b"VP8L" if bytes_at(bytes, 20)? == [0x2f] => {
            let bits = u32::from_le_bytes(bytes_at(bytes, 21)?);
            Some(((bits & WEBP_SIDE_MASK) + 1, ((bits >> 14) & WEBP_SIDE_MASK) + 1))
        }
        b"VP8X" => {
            let little = |offset| bytes_at(bytes, offset).map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]));
            Some((little(24)? + 1, little(27)? + 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::read_dimensions;

    #[test]
    fn a04_dimensions_are_read_from_each_image_format() {
        let cases: [(&str, &[u8], (u32, u32)); 7] = [
            ("image/png", b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x01\x02\0\0\0\x03", (258, 3)),
            ("image/gif", b"GIF89a\x02\x01\x03\0", (258, 3)),
            // An application segment, a fill byte and the frame header.
            ("image/jpeg", b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc0\0\x11\x08\0\x03\x01\x02", (258, 3)),
            ("image/jpeg", b"\xff\xd8\xff\xc4\0\x02\xff\xc2\0\x11\x08\0\x03\x01\x02", (258, 3)),
            ("image/webp", b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0abc\x9d\x01\x2a\x02\x41\x03\0", (258, 3)),
            ("image/webp", b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x01\x81\0\0", (258, 3)),
            ("image/webp", b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x01\x01\0\x02\0\0", (258, 3)),
        ];
        for (kind, bytes, size) in cases {
            assert_eq!(read_dimensions(kind, bytes), Some(size), "{kind}: {bytes:?}");
            for end in 0..bytes.len() {
                assert_eq!(read_dimensions(kind, &bytes[..end]), None, "{kind}: {:?}", &bytes[..end]);
            }
        }
    }

    #[test]
    fn a04_broken_headers_have_no_dimensions() {
        assert_eq!(read_dimensions("image/png", b"\x89PNG\r\n\x1a\nand then something else"), None);
        assert_eq!(read_dimensions("image/webp", b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0abcxyz\x02\x01\x03\0"), None);
    }

    #[test]
    fn a04_jpeg_without_a_frame_header_has_no_dimensions() {
        assert_eq!(read_dimensions("image/jpeg", b"\xff\xd8\xff\xda\0\x02\xff\xc0\0\x11\x08\0\x03\x01\x02"), None);
        assert_eq!(read_dimensions("image/jpeg", b"\xff\xd8\xff\xe0\0\0rest without a marker"), None);
    }
}
