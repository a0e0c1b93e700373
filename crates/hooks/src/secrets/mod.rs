//! Masking of secrets in tool outputs, so that they do not reach a tape.

mod masking_stream;
mod secret_spans;
mod secret_texts;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use capstan_protocol::{Content, ContentPart, KnownPart, ToolOutput};
use memchr::memmem::Finder;
use serde_json::Value;

pub use masking_stream::MaskingStream;
pub use secret_texts::visit_secret_texts;

/// Minimum length of a text to be treated as a secret, in bytes.
const MIN_SECRET_LEN: usize = 12;
/// Replacement for a secret.
const SECRET_MASK: &str = "[masked]";

/// Masks secrets, such as the key of a model provider, in tool outputs. A tool can read files and processes, and its
/// output is recorded permanently on the tape.
///
/// The host masks the output of every tool. Only complete secrets can be found, so a tool that truncates a text does so
/// at a [safe cut](Self::safe_cut), and a tool that emits a text in chunks passes them through a
/// [masking stream](Self::masking_stream).
///
/// Masking protects against accidents, not against intent: an encoded secret is not recognised.
///
/// ```
/// # use capstan_hooks::SecretMasker;
/// let secrets = SecretMasker::new(["sk-0123456789".to_owned()]);
/// let text = "KEY=sk-0123456789 and more";
/// assert_eq!(&text[..secrets.safe_cut(text, 10)], "KEY=sk-0123456789");
/// ```
#[derive(Clone, Default)]
pub struct SecretMasker(Arc<[Finder<'static>]>);

impl SecretMasker {
    /// Creates a masker for these secrets. Short ones are ignored: a placeholder key such as `test`, for servers that
    /// need none, occurs in ordinary text.
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let texts = texts.into_iter().map(|text| text.trim().to_owned()).filter(|text| text.len() >= MIN_SECRET_LEN);
        // A tool may show a JSON file verbatim, in which some characters are escaped.
        let mut texts: Vec<String> = texts.flat_map(|text| [to_json_escaped(&text), text]).collect();
        texts.sort_unstable();
        texts.dedup();
        Self(texts.iter().map(|text| Finder::new(text).into_owned()).collect())
    }

    /// Masks every secret in the output, including parts of a secret where a text was truncated.
    #[must_use]
    pub fn mask_output(&self, mut output: ToolOutput) -> ToolOutput {
        match &mut output.content {
            Content::Text(text) => self.mask_fragment(text),
            Content::Parts(parts) => parts.iter_mut().for_each(|part| self.mask_part(part)),
        }
        output
    }

    fn mask_part(&self, part: &mut ContentPart) {
        match part {
            ContentPart::Known(KnownPart::Text { text }) => self.mask_fragment(text),
            ContentPart::Known(KnownPart::ImageUrl { image_url }) => self.mask_text(&mut image_url.url),
            ContentPart::Other(fields) => fields.values_mut().for_each(|value| self.mask_value(value)),
        }
    }

    /// Masks every secret in the strings of a value.
    pub fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.mask_text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.mask_value(value)),
            Value::Object(map) => map.values_mut().for_each(|value| self.mask_value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Masks every secret in binary or text content. Needed before content is stored, because it may be read in parts
    /// that split a secret.
    #[must_use]
    pub fn mask_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        let spans = secret_spans::find_whole(&self.0, &bytes);
        if spans.is_empty() { bytes } else { replace_byte_spans(&bytes, &spans) }
    }

    /// Masks every secret in a text.
    pub fn mask_text(&self, text: &mut String) {
        replace_spans(text, &secret_spans::find_whole(&self.0, text.as_bytes()));
    }

    /// Masks every secret in a text that may be an excerpt of a longer one, including a substantial part of a secret at
    /// its beginning or end.
    pub fn mask_fragment(&self, text: &mut String) {
        let mut spans = secret_spans::find_whole(&self.0, text.as_bytes());
        spans.extend(secret_spans::find_partial_at_start(&self.0, text.as_bytes()));
        spans.extend(secret_spans::find_partial_at_end(&self.0, text.as_bytes()));
        replace_spans(text, &secret_spans::merge_overlapping(spans));
    }

    /// Nearest position at which the text can be truncated: a character boundary at or before `at`, or the end of the
    /// secret that spans it.
    pub fn safe_cut(&self, text: &str, at: usize) -> usize {
        if at >= text.len() {
            return text.len();
        }
        let mut at = text.floor_char_boundary(at);
        while let Some(span) = self.secret_spanning(text.as_bytes(), at) {
            at = span.end;
        }
        at
    }

    /// Secret that spans a position. Searches only the surrounding bytes.
    fn secret_spanning(&self, text: &[u8], at: usize) -> Option<Range<usize>> {
        let start = at.saturating_sub(self.max_secret_len());
        let surrounding = &text[start..text.len().min(at + self.max_secret_len())];
        let spans =
            secret_spans::find_whole(&self.0, surrounding).into_iter().map(|span| start + span.start..start + span.end);
        spans.into_iter().find(|span| span.start < at && at < span.end)
    }

    /// First `count` characters of a text, or more if a secret would be split.
    pub fn first_chars<'t>(&self, text: &'t str, count: usize) -> &'t str {
        let end = text.char_indices().nth(count).map_or(text.len(), |(end, _)| end);
        &text[..self.safe_cut(text, end)]
    }

    /// Length of the longest secret in bytes. A caller that retains only a part of a text retains this many more bytes
    /// to find a [safe cut](Self::safe_cut).
    pub fn max_secret_len(&self) -> usize {
        self.0.iter().map(|secret| secret.needle().len()).max().unwrap_or_default()
    }

    /// Creates a stream that masks secrets in chunks.
    pub fn masking_stream(&self) -> MaskingStream {
        MaskingStream::new(self.clone())
    }
}

/// Replaces spans with the mask. A text without spans, such as a large encoded image, is not copied.
fn replace_spans(text: &mut String, spans: &[Range<usize>]) {
    if spans.is_empty() {
        return;
    }
    let mut masked = String::with_capacity(text.len());
    let mut from = 0;
    for span in spans {
        // Secrets, and parts of them at an end of the text, begin and end on character boundaries.
        masked.extend([text.get(from..span.start).unwrap_or_default(), SECRET_MASK]);
        from = span.end;
    }
    masked.push_str(text.get(from..).unwrap_or_default());
    *text = masked;
}

fn replace_byte_spans(bytes: &[u8], spans: &[Range<usize>]) -> Vec<u8> {
    let mut masked = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for span in spans {
        masked.extend_from_slice(&bytes[from..span.start]);
        masked.extend_from_slice(SECRET_MASK.as_bytes());
        from = span.end;
    }
    masked.extend_from_slice(&bytes[from..]);
    masked
}

/// Escapes a text as in a JSON string, without the quotes.
fn to_json_escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

impl fmt::Debug for SecretMasker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretMasker({})", self.0.len())
    }
}

#[cfg(test)]
mod tests;
