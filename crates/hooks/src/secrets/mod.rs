//! What must not reach a tape.

mod masking_stream;
mod secret_spans;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use capstan_protocol::{Content, ContentPart, KnownPart, ToolOutput};
use memchr::memmem::Finder;
use serde_json::Value;

pub use masking_stream::MaskingStream;

/// How long a text must be to be taken for a secret.
const MIN_SECRET_LEN: usize = 12;
/// What stands in a secret's place.
const SECRET_MASK: &str = "[masked]";

/// Texts that no tool output may show, such as the provider's key: a tool can read files and processes, and what it
/// says stands on the tape for good.
///
/// The host masks whatever a tool answers. It can find only a secret that is whole, so a tool that shows a part of a text
/// asks [`cut`](Self::safe_cut) where to cut it, and one that gives a text bit by bit gives what a [`stream`](Self::masking_stream)
/// lets through.
///
/// It keeps a key from getting onto a tape by accident. Whoever wants to can have it printed in another alphabet.
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
    /// These texts. Short ones are left out: a word such as `test`, which servers without keys are given for one, is in
    /// everything and no secret.
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let texts = texts.into_iter().map(|text| text.trim().to_owned()).filter(|text| text.len() >= MIN_SECRET_LEN);
        // In a file of JSON, which a tool may show as it is, some letters are written in another way.
        let mut texts: Vec<String> = texts.flat_map(|text| [to_json_escaped(&text), text]).collect();
        texts.sort_unstable();
        texts.dedup();
        Self(texts.iter().map(|text| Finder::new(text).into_owned()).collect())
    }

    /// The output with every secret masked, and what is left of one where a text was cut.
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

    /// Masks every secret in the texts of a value.
    pub fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.mask_text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.mask_value(value)),
            Value::Object(map) => map.values_mut().for_each(|value| self.mask_value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A content with every secret masked, whether it is text or not: it may be read in parts, which cut through them.
    #[must_use]
    pub fn mask_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        let spans = secret_spans::find_whole(&self.0, &bytes);
        if spans.is_empty() { bytes } else { replace_byte_spans(&bytes, &spans) }
    }

    /// Masks every secret in a text.
    pub fn mask_text(&self, text: &mut String) {
        replace_spans(text, &secret_spans::find_whole(&self.0, text.as_bytes()));
    }

    /// Masks every secret in a text that may have been cut out of a longer one: also a good part of a secret that it
    /// begins or ends with.
    pub fn mask_fragment(&self, text: &mut String) {
        let mut spans = secret_spans::find_whole(&self.0, text.as_bytes());
        spans.extend(secret_spans::find_partial_at_start(&self.0, text.as_bytes()));
        spans.extend(secret_spans::find_partial_at_end(&self.0, text.as_bytes()));
        replace_spans(text, &secret_spans::merge_overlapping(spans));
    }

    /// Where to cut a text: at this place, or, where that lies inside of a secret, behind it. It is between two letters.
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

    /// The secret that lies across a place, which is looked for around it only.
    fn secret_spanning(&self, text: &[u8], at: usize) -> Option<Range<usize>> {
        let begin = at.saturating_sub(self.max_secret_len());
        let around = &text[begin..text.len().min(at + self.max_secret_len())];
        let spans =
            secret_spans::find_whole(&self.0, around).into_iter().map(|span| begin + span.start..begin + span.end);
        spans.into_iter().find(|span| span.start < at && at < span.end)
    }

    /// The first letters of a text, so many or, where a secret would be cut, some more.
    pub fn first_chars<'t>(&self, text: &'t str, most: usize) -> &'t str {
        let end = text.char_indices().nth(most).map_or(text.len(), |(end, _)| end);
        &text[..self.safe_cut(text, end)]
    }

    /// How many bytes the longest one has: who keeps only a part of a text keeps so many more, to know where to
    /// [`cut`](Self::safe_cut) it.
    pub fn max_secret_len(&self) -> usize {
        self.0.iter().map(|secret| secret.needle().len()).max().unwrap_or_default()
    }

    /// Masks what comes bit by bit.
    pub fn masking_stream(&self) -> MaskingStream {
        MaskingStream::new(self.clone())
    }
}

/// An image may be millions of letters long, and is left as it is where it holds nothing.
fn replace_spans(text: &mut String, spans: &[Range<usize>]) {
    if spans.is_empty() {
        return;
    }
    let mut masked = String::with_capacity(text.len());
    let mut from = 0;
    for span in spans {
        // A secret begins and ends between two letters, and so does a part of one at an end of the text.
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

/// A text as it stands between the quotes of a JSON text.
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
