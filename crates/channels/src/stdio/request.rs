//! What a line asks.

use std::fmt;

use capstan_protocol::{CodedError, Event, EventId, SessionId, Timestamp};
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::StdioChannel;
use super::line_reader::LineTooLong;

/// The longest name of a session or event, in bytes.
const MAX_REQUEST_NAME_BYTES: usize = 1024;
/// The longest `id`, in bytes: it is repeated with everything that is said about the line.
const MAX_REQUEST_ID_BYTES: usize = 4096;
/// The longest line that is kept as it came, in bytes. A longer one is long because of its text, which the event has.
const MAX_RAW_LINE_BYTES: usize = 64 * 1024;
/// The fields of a line.
const REQUEST_FIELDS: &[&str] = &["id", "session", "text", "stream", "event_id", "event_time"];

/// What `event_time` must be. The last day of the last year is missing, so that every time can be told in every zone.
const EVENT_TIME_FORMAT: &str =
    "a time such as 2026-11-15T20:57:42Z, from the year 0 and not after 9999-12-30T22:00:00Z";
/// What is wrong with a text that has one surrogate without the other.
const UNPAIRED_SURROGATE: &str = "it has half of a surrogate pair (as \\ud800 is), which is no character";

/// What a line asks.
#[derive(Debug)]
pub(super) struct LineRequest {
    /// What the caller correlates by, as it was written.
    pub(super) id: Option<Box<RawValue>>,
    pub(super) stream: bool,
    pub(super) event: Event,
    /// The line as it came, where it says more than the event does: its `id`, by which its writer knows it.
    pub(super) raw: Option<Vec<u8>>,
}

/// A line that cannot be used.
#[derive(Debug)]
pub(super) struct InvalidLine {
    /// Its `id`, as far as it could be read.
    pub(super) id: Option<Box<RawValue>>,
    pub(super) reason: InvalidLineReason,
}

/// Why a line cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error, CodedError)]
pub(super) enum InvalidLineReason {
    #[error("the line has more than the {limit} bytes allowed")]
    #[code(LineTooLong)]
    TooLong { limit: usize },
    #[error("the line is not valid UTF-8, from byte {at} on")]
    #[code(LineNotUtf8)]
    NotUtf8 { at: usize },
    #[error("the line is not valid JSON: {detail}")]
    #[code(LineNotJson)]
    NotJson { detail: String },
    #[error("the line is JSON, but no object")]
    #[code(LineNotObject)]
    NotObject,
    #[error("there is no field {field:?}{}", .nearest.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default())]
    #[code(LineFieldUnknown)]
    UnknownField { field: String, nearest: Option<&'static str> },
    #[error("the field {field:?} is missing")]
    #[code(LineFieldMissing)]
    MissingField { field: &'static str },
    #[error("the field {field:?} is not valid: {detail}")]
    #[code(LineFieldInvalid)]
    InvalidField { field: &'static str, detail: String },
    #[error("the text is empty")]
    #[code(LineTextEmpty)]
    EmptyText,
}

impl LineRequest {
    /// Reads a line. A blank one asks nothing.
    pub(super) fn parse(line: Result<Vec<u8>, LineTooLong>) -> Result<Option<Self>, InvalidLine> {
        let unusable = |reason| InvalidLine { id: None, reason };
        let bytes = line.map_err(|LineTooLong { limit }| unusable(InvalidLineReason::TooLong { limit }))?;
        let text = std::str::from_utf8(&bytes);
        let text = text.map_err(|error| unusable(InvalidLineReason::NotUtf8 { at: error.valid_up_to() + 1 }))?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let fields = RequestFields::parse(text).map_err(unusable)?;
        let id = fields.id().map_err(unusable)?;
        match fields.event() {
            Ok((event, stream)) => {
                let raw = Some(bytes).filter(|bytes| id.is_some() && bytes.len() <= MAX_RAW_LINE_BYTES);
                Ok(Some(Self { id, stream, event, raw }))
            }
            Err(reason) => Err(InvalidLine { id, reason }),
        }
    }
}

/// The fields of an object, in order, their values not yet looked at.
struct RequestFields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> RequestFields<'a> {
    fn parse(text: &'a str) -> Result<Self, InvalidLineReason> {
        let broken = |error: serde_json::Error| InvalidLineReason::NotJson { detail: describe_json_error(&error) };
        let value: &RawValue = serde_json::from_str(text).map_err(broken)?;
        if !value.get().starts_with('{') {
            return Err(InvalidLineReason::NotObject);
        }
        let fields = serde_json::Deserializer::from_str(value.get()).deserialize_map(FieldsVisitor);
        fields.map(Self).map_err(broken)
    }

    /// The value of a field, unless it is null, which is as good as absent.
    fn get(&self, field: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().find(|(name, _)| name == field).map(|(_, value)| *value);
        found.filter(|value| value.get() != "null")
    }

    fn id(&self) -> Result<Option<Box<RawValue>>, InvalidLineReason> {
        match self.get("id") {
            Some(id) if id.get().len() > MAX_REQUEST_ID_BYTES => Err(field_too_long("id", MAX_REQUEST_ID_BYTES)),
            id => Ok(id.map(ToOwned::to_owned)),
        }
    }

    fn value<T: DeserializeOwned>(&self, field: &'static str, kind: &str) -> Result<Option<T>, InvalidLineReason> {
        let Some(value) = self.get(field) else { return Ok(None) };
        serde_json::from_str(value.get()).map(Some).map_err(|error| {
            // Of a text that is valid JSON so far only the escapes have not been looked at.
            let is_half = error.is_syntax() && value.get().starts_with('"');
            let detail = if is_half { UNPAIRED_SURROGATE.to_owned() } else { format!("it must be {kind}") };
            InvalidLineReason::InvalidField { field, detail }
        })
    }

    /// A name: a text of one line that is not blank.
    fn name(&self, field: &'static str) -> Result<Option<String>, InvalidLineReason> {
        let invalid = |detail: &str| Err(InvalidLineReason::InvalidField { field, detail: detail.to_owned() });
        match self.value::<String>(field, "a text")? {
            Some(name) if name.trim().is_empty() => invalid("it is empty"),
            Some(name) if name.len() > MAX_REQUEST_NAME_BYTES => Err(field_too_long(field, MAX_REQUEST_NAME_BYTES)),
            Some(name) if name.contains(char::is_control) => invalid("it has control characters"),
            name => Ok(name),
        }
    }

    /// The event the fields make, and whether it is to be streamed.
    fn event(&self) -> Result<(Event, bool), InvalidLineReason> {
        self.check_field_names()?;
        let session = self.name("session")?.ok_or(InvalidLineReason::MissingField { field: "session" })?;
        let text: Option<String> = self.value("text", "a text")?;
        let text = text.ok_or(InvalidLineReason::MissingField { field: "text" })?;
        if text.trim().is_empty() {
            return Err(InvalidLineReason::EmptyText);
        }
        if text.contains('\0') {
            return Err(InvalidLineReason::InvalidField { field: "text", detail: "it has a NUL character".to_owned() });
        }
        let stream = self.value("stream", "true or false")?.unwrap_or(false);
        let mut event = Event::message(StdioChannel::CHANNEL_NAME, session.as_str(), text);
        event.event_time = self.value::<Timestamp>("event_time", EVENT_TIME_FORMAT)?;
        if let Some(id) = self.name("event_id")? {
            event.event_id = EventId::new(id);
        }
        event.session_id = Some(SessionId::new(session));
        Ok((event, stream))
    }

    /// A field that is misspelt or given twice would be lost without a word.
    fn check_field_names(&self) -> Result<(), InvalidLineReason> {
        for (index, (name, _)) in self.0.iter().enumerate() {
            let Some(field) = REQUEST_FIELDS.iter().find(|field| *field == name) else {
                let near = REQUEST_FIELDS.iter().filter(|field| strsim::osa_distance(field, name) <= 2);
                let nearest = near.min_by_key(|field| strsim::osa_distance(field, name)).copied();
                return Err(InvalidLineReason::UnknownField { field: shorten_name(name), nearest });
            };
            if self.0[..index].iter().any(|(other, _)| other == name) {
                return Err(InvalidLineReason::InvalidField { field, detail: "it is given twice".to_owned() });
            }
        }
        Ok(())
    }
}

fn field_too_long(field: &'static str, limit: usize) -> InvalidLineReason {
    InvalidLineReason::InvalidField { field, detail: format!("it has more than the {limit} bytes allowed") }
}

/// Enough of a name to be recognised.
fn shorten_name(name: &str) -> String {
    let short: String = name.chars().take(64).collect();
    if short == name { short } else { short + "…" }
}

/// What is wrong, and in which column: the error's own line is always the first.
fn describe_json_error(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let what = said.rsplit_once(" at line ").map_or(said.as_str(), |(what, _)| what);
    format!("{what} at column {}", error.column())
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(fields)
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
