//! Documents given to a command as a file or on standard input.

use std::io::Read as _;

use capstan_protocol::{ErrorCode, Event};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::unique_keys::UniqueKeysValue;
use crate::CommandError;

/// Maximum size of a document.
const MAX_DOCUMENT_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum length of a parser's message, which may quote a whole line of the document.
const MAX_PARSE_ERROR_CHARS: usize = 1000;

/// The text of a document and its source.
pub(super) struct InputDocument {
    /// Name of the source in error messages.
    source: String,
    text: String,
}

impl InputDocument {
    /// Reads a file, or standard input if the path is `-`.
    pub(super) fn read(path: &str) -> Result<Self, CommandError> {
        let source = if path == "-" { "the standard input".to_owned() } else { path.to_owned() };
        let failed = |detail: &str| {
            let failure = CommandError::new(ErrorCode::InputInvalid, format!("{source} {detail}"));
            failure.with_hint("give the path of a UTF-8 text file, or - to read the standard input")
        };
        let input: Box<dyn std::io::Read> = if path == "-" {
            Box::new(std::io::stdin().lock())
        } else {
            Box::new(std::fs::File::open(path).map_err(|error| failed(&format!("cannot be read: {error}")))?)
        };
        let mut bytes = Vec::new();
        let read = input.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| failed(&format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
            return Err(failed(&format!("is larger than {MAX_DOCUMENT_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed("is not valid UTF-8"))?;
        if text.contains('\0') {
            return Err(failed("is not a text file: it contains a NUL character"));
        }
        if text.trim().is_empty() {
            return Err(failed("is empty"));
        }
        Ok(Self { source, text })
    }

    /// Wraps a text that is at hand already.
    pub(super) fn from_text(source: &str, text: &str) -> Self {
        Self { source: source.to_owned(), text: text.to_owned() }
    }

    /// Parses the document as JSON.
    pub(super) fn parse_json<T: DeserializeOwned>(&self, code: ErrorCode) -> Result<T, CommandError> {
        serde_json::from_str(&self.text).map_err(|error| {
            let prefix = if error.is_data() { "" } else { "not valid JSON: " };
            self.invalid_error(code, &format!("{prefix}{error}"))
        })
    }

    /// Parses the document as TOML, or as JSON if it is a JSON object.
    pub(super) fn parse_toml_or_json<T: DeserializeOwned>(&self, code: ErrorCode) -> Result<T, CommandError> {
        let text = self.text.trim_start();
        if text.starts_with('{') {
            return self.parse_json(code);
        }
        // TOML reads a JSON array as a table header, and its error message would be misleading.
        if text.starts_with('[') && serde_json::from_str::<Value>(text).is_ok() {
            return Err(self.invalid_error(code, "expected an object, found a JSON array"));
        }
        toml::from_str(&self.text).map_err(|error| {
            let mut detail = error.to_string();
            if detail.len() > MAX_PARSE_ERROR_CHARS {
                let before = error.span().and_then(|span| self.text.get(..span.start)).unwrap_or_default();
                detail = format!("line {}: {}", before.matches('\n').count() + 1, error.message());
            }
            self.invalid_error(code, detail.trim_end())
        })
    }

    /// Parses the document as any JSON value, and rejects duplicate keys.
    pub(super) fn parse_unique_json(&self, code: ErrorCode) -> Result<Value, CommandError> {
        self.parse_json::<UniqueKeysValue>(code).map(|value| value.0)
    }

    /// Parses the document as the envelope of an event.
    pub(super) fn parse_envelope(&self) -> Result<Event, CommandError> {
        Event::from_envelope(self.parse_unique_json(ErrorCode::EnvelopeInvalid)?)
            .map_err(|error| self.invalid_error(ErrorCode::EnvelopeInvalid, &error.to_string()))
    }

    /// An error about the document. Control characters are removed, because the detail may quote the document.
    fn invalid_error(&self, code: ErrorCode, detail: &str) -> CommandError {
        let is_plain = |character: &char| !character.is_control() || *character == '\n';
        let detail: String = detail.chars().filter(is_plain).take(MAX_PARSE_ERROR_CHARS).collect();
        CommandError::new(code, format!("{}: {detail}", self.source))
    }
}
