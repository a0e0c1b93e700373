//! Content of a page, derived from its bytes and content type.

use capstan_protocol::Content;
use encoding_rs::{Encoding, UTF_8};
use reqwest::Url;

use super::html_text;
use crate::tools::image;

/// Number of bytes inspected for the page's type and encoding.
const PAGE_SNIFF_BYTES: usize = 1024;

/// Maximum length of the text of a page.
const MAX_PAGE_TEXT_BYTES: usize = 5 * 1024 * 1024;

/// Content of a page.
#[derive(Debug)]
pub(super) enum PageContent {
    /// Text, converted from HTML if necessary.
    Text {
        /// Text of the page.
        text: String,
        /// The page has more text.
        is_truncated: bool,
    },
    /// Image for a model.
    Image(Content),
}

/// Converts the bytes of a page, given the content type that the server reports.
pub(super) fn parse_page(url: &Url, kind: &str, bytes: &[u8], is_truncated: bool) -> Result<PageContent, String> {
    if let Some(kind) = image::media_type(bytes) {
        if is_truncated || bytes.len() as u64 > image::MAX_IMAGE_BYTES {
            return Err("the image is larger than models accept".to_owned());
        }
        return image::image_content(url.as_str(), kind, bytes).map(PageContent::Image);
    }
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let prefix = String::from_utf8_lossy(&bytes[..bytes.len().min(PAGE_SNIFF_BYTES)]).to_ascii_lowercase();
    let looks_like_html = prefix.contains("<!doctype html") || prefix.contains("<html");
    let is_html = match essence.as_str() {
        "text/html" | "application/xhtml+xml" => true,
        "" | "application/octet-stream" | "text/plain" => looks_like_html && essence != "text/plain",
        _ => false,
    };
    if !is_html && (bytes.contains(&0) || !is_text(&essence)) {
        let description = if essence.is_empty() { "binary data" } else { essence.as_str() };
        return Err(format!("the page is {description}, not text; save it to a file with curl in bash"));
    }
    let text = decode_text(kind, &prefix, bytes);
    if !is_html {
        return Ok(PageContent::Text { text, is_truncated });
    }
    let markdown = html_text::html_to_markdown(url, &text, MAX_PAGE_TEXT_BYTES);
    Ok(PageContent::Text { text: markdown.text, is_truncated: is_truncated || markdown.is_truncated })
}

fn is_text(essence: &str) -> bool {
    let (_, sub) = essence.split_once('/').unwrap_or_default();
    let plain = ["json", "xml", "javascript", "x-javascript", "yaml", "x-yaml", "toml", "x-sh", "sql", "x-ndjson"];
    let suffixed = ["+json", "+xml", "+yaml"].iter().any(|end| sub.ends_with(end));
    essence.starts_with("text/")
        || plain.contains(&sub)
        || suffixed
        || ["", "application/octet-stream"].contains(&essence)
}

/// Decodes the text with the encoding named by the server or the page; UTF-8 by default.
fn decode_text(kind: &str, prefix: &str, bytes: &[u8]) -> String {
    let kind = kind.to_ascii_lowercase();
    let named = charset(&kind).or_else(|| charset(prefix));
    let encoding = named.and_then(|label| Encoding::for_label(label.as_bytes())).unwrap_or(UTF_8);
    encoding.decode(bytes).0.into_owned()
}

fn charset(text: &str) -> Option<&str> {
    let rest = text.split_once("charset=")?.1.trim_start_matches(['"', '\'', ' ']);
    rest.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':'))).next()
}
