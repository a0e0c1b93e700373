//! What a page says, told from its bytes.

use capstan_protocol::Content;
use encoding_rs::{Encoding, UTF_8};
use reqwest::Url;

use super::html_text;
use crate::tools::image;

/// How far a page is looked at for its kind and its characters.
const PAGE_SNIFF_BYTES: usize = 1024;

/// What a page says.
#[derive(Debug)]
pub(super) enum PageContent {
    /// Text.
    Text(String),
    /// An image.
    Image(Content),
}

/// What a page says, given what the server calls it.
pub(super) fn parse_page(url: &Url, kind: &str, bytes: &[u8], is_cut: bool) -> Result<PageContent, String> {
    if let Some(kind) = image::media_type(bytes) {
        if is_cut || bytes.len() as u64 > image::MAX_IMAGE_BYTES {
            return Err("the image is larger than a model takes".to_owned());
        }
        return image::image_content(url.as_str(), kind, bytes).map(PageContent::Image);
    }
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(PAGE_SNIFF_BYTES)]).to_ascii_lowercase();
    let looks_like_html = begin.contains("<!doctype html") || begin.contains("<html");
    let is_html = match essence.as_str() {
        "text/html" | "application/xhtml+xml" => true,
        "" | "application/octet-stream" | "text/plain" => looks_like_html && essence != "text/plain",
        _ => false,
    };
    if !is_html && (bytes.contains(&0) || !is_text(&essence)) {
        let what = if essence.is_empty() { "something else" } else { essence.as_str() };
        return Err(format!("it is {what}, not text; curl in bash can save it to a file"));
    }
    let text = decode_text(kind, &begin, bytes);
    Ok(PageContent::Text(if is_html { html_text::html_to_markdown(url, &text) } else { text }))
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

/// The text in the characters the server names, or the page itself; else UTF-8.
fn decode_text(kind: &str, begin: &str, bytes: &[u8]) -> String {
    let kind = kind.to_ascii_lowercase();
    let named = charset(&kind).or_else(|| charset(begin));
    let encoding = named.and_then(|label| Encoding::for_label(label.as_bytes())).unwrap_or(UTF_8);
    encoding.decode(bytes).0.into_owned()
}

fn charset(text: &str) -> Option<&str> {
    let rest = text.split_once("charset=")?.1.trim_start_matches(['"', '\'', ' ']);
    rest.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':'))).next()
}
