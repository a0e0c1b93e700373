//! A document that a command is given: a file, or the standard input.

use std::io::Read as _;

use capstan_protocol::{ErrorCode, Event};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::unique_keys::UniqueKeysValue;
use crate::CommandError;

/// The largest document that is read.
const MAX_DOCUMENT_BYTES: u64 = 16 * 1024 * 1024;
/// How much of what a parser says is shown: it may repeat a line of the document, which can be all of it.
const MAX_PARSE_ERROR_CHARS: usize = 1000;

/// A document as text.
pub(super) struct InputDocument {
    /// Where it came from, for people.
    source: String,
    text: String,
}

impl InputDocument {
    /// Reads a file, or the standard input where `-` is given.
    pub(super) fn read(path: &str) -> Result<Self, CommandError> {
        let place = if path == "-" { "the standard input".to_owned() } else { path.to_owned() };
        let failed = |detail: &str| {
            let failure = CommandError::new(ErrorCode::InputInvalid, format!("{place} {detail}"));
            failure.with_hint("give the path of a text file in UTF-8, or - to read the standard input")
        };
        let source: Box<dyn std::io::Read> = if path == "-" {
            Box::new(std::io::stdin().lock())
        } else {
            Box::new(std::fs::File::open(path).map_err(|error| failed(&format!("cannot be read: {error}")))?)
        };
        let mut bytes = Vec::new();
        let read = source.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| failed(&format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
            return Err(failed(&format!("has more than {MAX_DOCUMENT_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed("is not valid UTF-8"))?;
        if text.contains('\0') {
            return Err(failed("is no text: it has a NUL character"));
        }
        if text.trim().is_empty() {
            return Err(failed("is empty"));
        }
        Ok(Self { source: place, text })
    }

    /// A document that was given as a text.
    pub(super) fn from_text(place: &str, text: &str) -> Self {
        Self { source: place.to_owned(), text: text.to_owned() }
    }

    /// What it says, in JSON.
    pub(super) fn parse_json<T: DeserializeOwned>(&self, code: ErrorCode) -> Result<T, CommandError> {
        serde_json::from_str(&self.text).map_err(|error| {
            let begins = if error.is_data() { "" } else { "it is not JSON: " };
            self.invalid_error(code, &format!("{begins}{error}"))
        })
    }

    /// What it says, in TOML, or in JSON where it is an object of that.
    pub(super) fn parse_toml_or_json<T: DeserializeOwned>(&self, code: ErrorCode) -> Result<T, CommandError> {
        let text = self.text.trim_start();
        if text.starts_with('{') {
            return self.parse_json(code);
        }
        // A list of JSON reads as the name of a table in TOML, and what is said of that helps nobody.
        if text.starts_with('[') && serde_json::from_str::<Value>(text).is_ok() {
            return Err(self.invalid_error(code, "it is a list in JSON, and not an object"));
        }
        toml::from_str(&self.text).map_err(|error| {
            let mut said = error.to_string();
            if said.len() > MAX_PARSE_ERROR_CHARS {
                let before = error.span().and_then(|span| self.text.get(..span.start)).unwrap_or_default();
                said = format!("line {}: {}", before.matches('\n').count() + 1, error.message());
            }
            self.invalid_error(code, said.trim_end())
        })
    }

    /// What it says in JSON, whatever that is. What is given twice is refused.
    pub(super) fn parse_unique_json(&self, code: ErrorCode) -> Result<Value, CommandError> {
        self.parse_json::<UniqueKeysValue>(code).map(|once| once.0)
    }

    /// The event whose envelope it is.
    pub(super) fn parse_envelope(&self) -> Result<Event, CommandError> {
        Event::from_envelope(self.parse_unique_json(ErrorCode::EnvelopeInvalid)?)
            .map_err(|error| self.invalid_error(ErrorCode::EnvelopeInvalid, &error.to_string()))
    }

    /// What is wrong with it. What is repeated of it must not drive a terminal.
    fn invalid_error(&self, code: ErrorCode, detail: &str) -> CommandError {
        let is_plain = |character: &char| !character.is_control() || *character == '\n';
        let detail: String = detail.chars().filter(is_plain).take(MAX_PARSE_ERROR_CHARS).collect();
        CommandError::new(code, format!("{}: {detail}", self.source))
    }
}
