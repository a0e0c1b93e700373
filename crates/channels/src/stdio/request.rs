//! Request lines.

use std::fmt;

use capstan_protocol::{CodedError, Event, EventId, EventTime, SessionId, truncate_chars};
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::StdioChannel;
use super::line_reader::LineTooLong;

/// Maximum length of a name that an error message repeats.
const MAX_SHOWN_NAME_CHARS: usize = 64;

/// Maximum length of a session name or event id in bytes.
const MAX_REQUEST_NAME_BYTES: usize = 1024;
/// Maximum length of an `id` in bytes: it is repeated in every output line of the request.
const MAX_REQUEST_ID_BYTES: usize = 4096;
/// Maximum length of a line that is stored verbatim. A longer line is long because of its text, which the event contains.
const MAX_RAW_LINE_BYTES: usize = 64 * 1024;
/// Fields of a request.
const REQUEST_FIELDS: &[&str] = &["id", "session", "text", "stream", "event_id", "event_time", "conversation_kind"];

/// Description of a valid `event_time`. The last day of the last year is excluded, so that every time can be represented in
/// every time zone.
const EVENT_TIME_FORMAT: &str = "a time such as 2026-11-15T20:57:42Z, or seconds since the epoch, from the year 0 and not after 9999-12-30T22:00:00Z";
/// Description of a valid `conversation_kind`.
const CONVERSATION_KINDS: &str = "\"private\" or \"group\"";
/// Detail for a string with an unpaired surrogate.
const UNPAIRED_SURROGATE: &str = "it contains half of a surrogate pair (such as \\ud800), which is not a character";

/// Parsed request line.
#[derive(Debug)]
pub(super) struct LineRequest {
    /// Correlation id of the caller, verbatim.
    pub(super) id: Option<Box<RawValue>>,
    pub(super) stream: bool,
    pub(super) event: Event,
    /// Line verbatim, if it contains more than the event does: the `id` known to its sender.
    pub(super) raw: Option<Vec<u8>>,
}

/// Error for an invalid line.
#[derive(Debug)]
pub(super) struct InvalidLine {
    /// `id` of the line, as far as it could be read.
    pub(super) id: Option<Box<RawValue>>,
    pub(super) reason: InvalidLineReason,
}

/// Reason why a line is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error, CodedError)]
pub(super) enum InvalidLineReason {
    #[error("the line exceeds the limit of {limit} bytes")]
    #[code(LineTooLong)]
    TooLong { limit: usize },
    #[error("the line is not valid UTF-8 at byte {at}")]
    #[code(LineNotUtf8)]
    NotUtf8 { at: usize },
    #[error("the line is not valid JSON: {detail}")]
    #[code(LineNotJson)]
    NotJson { detail: String },
    #[error("the line is JSON, but not an object")]
    #[code(LineNotObject)]
    NotObject,
    #[error("unknown field {field:?}{}", .nearest.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default())]
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
    /// Parses a line. Returns `None` for a blank one.
    pub(super) fn parse(line: Result<Vec<u8>, LineTooLong>) -> Result<Option<Self>, InvalidLine> {
        let invalid = |reason| InvalidLine { id: None, reason };
        let bytes = line.map_err(|LineTooLong { limit }| invalid(InvalidLineReason::TooLong { limit }))?;
        let text = std::str::from_utf8(&bytes);
        let text = text.map_err(|error| invalid(InvalidLineReason::NotUtf8 { at: error.valid_up_to() + 1 }))?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let fields = RequestFields::parse(text).map_err(invalid)?;
        let id = fields.id().map_err(invalid)?;
        match fields.event() {
            Ok((event, stream)) => {
                let raw = Some(bytes).filter(|bytes| id.is_some() && bytes.len() <= MAX_RAW_LINE_BYTES);
                Ok(Some(Self { id, stream, event, raw }))
            }
            Err(reason) => Err(InvalidLine { id, reason }),
        }
    }
}

/// Fields of an object in order, with unparsed values.
struct RequestFields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> RequestFields<'a> {
    fn parse(text: &'a str) -> Result<Self, InvalidLineReason> {
        let not_json = |error: serde_json::Error| InvalidLineReason::NotJson { detail: describe_json_error(&error) };
        let value: &RawValue = serde_json::from_str(text).map_err(not_json)?;
        if !value.get().starts_with('{') {
            return Err(InvalidLineReason::NotObject);
        }
        let fields = serde_json::Deserializer::from_str(value.get()).deserialize_map(FieldsVisitor);
        fields.map(Self).map_err(not_json)
    }

    /// Value of a field; null counts as absent.
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
            // The value is valid JSON, so a string can only fail because of its escapes.
            let is_unpaired = error.is_syntax() && value.get().starts_with('"');
            let detail = if is_unpaired { UNPAIRED_SURROGATE.to_owned() } else { format!("it must be {kind}") };
            InvalidLineReason::InvalidField { field, detail }
        })
    }

    /// Value of a name field: one line that is not blank.
    fn name(&self, field: &'static str) -> Result<Option<String>, InvalidLineReason> {
        let invalid = |detail: &str| Err(InvalidLineReason::InvalidField { field, detail: detail.to_owned() });
        match self.value::<String>(field, "a string")? {
            Some(name) if name.trim().is_empty() => invalid("it is empty"),
            Some(name) if name.len() > MAX_REQUEST_NAME_BYTES => Err(field_too_long(field, MAX_REQUEST_NAME_BYTES)),
            Some(name) if name.contains(char::is_control) => invalid("it contains control characters"),
            name => Ok(name),
        }
    }

    /// Event made of the fields, and whether stream events are requested.
    fn event(&self) -> Result<(Event, bool), InvalidLineReason> {
        self.check_field_names()?;
        let session = self.name("session")?.ok_or(InvalidLineReason::MissingField { field: "session" })?;
        let text: Option<String> = self.value("text", "a string")?;
        let text = text.ok_or(InvalidLineReason::MissingField { field: "text" })?;
        if text.trim().is_empty() {
            return Err(InvalidLineReason::EmptyText);
        }
        if text.contains('\0') {
            let detail = "it contains a NUL character".to_owned();
            return Err(InvalidLineReason::InvalidField { field: "text", detail });
        }
        let stream = self.value("stream", "true or false")?.unwrap_or(false);
        let mut event = Event::message(StdioChannel::CHANNEL_NAME, session.as_str(), text);
        event.event_time = self.value("event_time", EVENT_TIME_FORMAT)?.map(|EventTime(time)| time);
        event.conversation_kind = self.value("conversation_kind", CONVERSATION_KINDS)?;
        if let Some(id) = self.name("event_id")? {
            event.event_id = EventId::new(id);
        }
        event.session_id = Some(SessionId::new(session));
        Ok((event, stream))
    }

    /// Rejects misspelt and repeated fields, which would otherwise be ignored silently.
    fn check_field_names(&self) -> Result<(), InvalidLineReason> {
        for (index, (name, _)) in self.0.iter().enumerate() {
            let Some(field) = REQUEST_FIELDS.iter().find(|field| *field == name) else {
                let near = REQUEST_FIELDS.iter().filter(|field| strsim::osa_distance(field, name) <= 2);
                let nearest = near.min_by_key(|field| strsim::osa_distance(field, name)).copied();
                return Err(InvalidLineReason::UnknownField { field: shorten_name(name), nearest });
            };
            if self.0[..index].iter().any(|(other, _)| other == name) {
                let detail = "it is given more than once".to_owned();
                return Err(InvalidLineReason::InvalidField { field, detail });
            }
        }
        Ok(())
    }
}

fn field_too_long(field: &'static str, limit: usize) -> InvalidLineReason {
    InvalidLineReason::InvalidField { field, detail: format!("it exceeds the limit of {limit} bytes") }
}

/// Start of a name, long enough to be recognised.
fn shorten_name(name: &str) -> String {
    truncate_chars(name, MAX_SHOWN_NAME_CHARS, "…")
}

/// Error message with its column only: the line number is always 1.
fn describe_json_error(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let problem = message.rsplit_once(" at line ").map_or(message.as_str(), |(problem, _)| problem);
    format!("{problem} at column {}", error.column())
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
