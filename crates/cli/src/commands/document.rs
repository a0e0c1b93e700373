//! A document that a command is given: a file, or the standard input.

use std::io::Read as _;

use capstan_protocol::Event;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::once::Once;
use crate::{Exit, Failure};

/// The largest document that is read.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// A document as text.
pub(super) struct Document {
    /// Where it came from, for people.
    place: String,
    text: String,
}

impl Document {
    /// Reads a file, or the standard input where `-` is given.
    pub(super) fn read(path: &str) -> Result<Self, Failure> {
        let place = if path == "-" { "the standard input".to_owned() } else { path.to_owned() };
        let failed = |detail: &str| Failure::new("input-invalid", format!("{place} {detail}"), Exit::Usage);
        let source: Box<dyn std::io::Read> = if path == "-" {
            Box::new(std::io::stdin().lock())
        } else {
            Box::new(std::fs::File::open(path).map_err(|error| failed(&format!("cannot be read: {error}")))?)
        };
        let mut bytes = Vec::new();
        let read = source.take(MOST_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| failed(&format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(failed(&format!("has more than {MOST_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed("is not valid UTF-8"))?;
        Ok(Self { place, text })
    }

    /// What it says, in JSON or TOML.
    pub(super) fn parse<T: DeserializeOwned>(&self, code: &str) -> Result<T, Failure> {
        let failed = |detail: String| Failure::new(code, format!("{}: {detail}", self.place), Exit::Usage);
        if self.text.trim_start().starts_with('{') {
            return serde_json::from_str(&self.text).map_err(|error| failed(error.to_string()));
        }
        toml::from_str(&self.text).map_err(|error| failed(error.to_string().trim_end().to_owned()))
    }

    /// What it says, whatever that is. What is given twice is refused.
    pub(super) fn value(&self, code: &str) -> Result<Value, Failure> {
        self.parse::<Once>(code).map(|once| once.0)
    }

    /// The event whose envelope it is.
    pub(super) fn envelope(&self) -> Result<Event, Failure> {
        Event::from_envelope(self.value("envelope-invalid")?)
            .map_err(|error| Failure::new("envelope-invalid", format!("{}: {error}", self.place), Exit::Usage))
    }
}
