//! What a line asks.

use std::fmt;

use capstan_protocol::{Event, EventId, SessionId, Timestamp};
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Stdio;
use super::lines::TooLong;

/// The longest name of a session or event, in bytes.
const NAME_BYTES: usize = 1024;
/// The longest `id`, in bytes: it is repeated with everything that is said about the line.
const ID_BYTES: usize = 4096;
/// The longest line that is kept as it came, in bytes. A longer one is long because of its text, which the event has.
const RAW_BYTES: usize = 64 * 1024;
/// The fields of a line.
const FIELDS: &[&str] = &["id", "session", "text", "stream", "event_id", "event_time"];

/// What `event_time` must be. The last day of the last year is missing, so that every time can be told in every zone.
const TIME: &str = "a time such as 2026-11-15T20:57:42Z, from the year 0 and not after 9999-12-30T22:00:00Z";
/// What is wrong with a text that has one surrogate without the other.
const HALF_A_CHARACTER: &str = "it has half of a surrogate pair (as \\ud800 is), which is no character";

/// The codes of lines that cannot be used.
pub const CODES: &[&str] = &[
    "line-too-long",
    "line-not-utf8",
    "line-not-json",
    "line-not-object",
    "line-field-unknown",
    "line-field-missing",
    "line-field-invalid",
    "line-text-empty",
];

/// What a line asks.
#[derive(Debug)]
pub(super) struct Request {
    /// What the caller correlates by, as it was written.
    pub(super) id: Option<Box<RawValue>>,
    pub(super) stream: bool,
    pub(super) event: Event,
    /// The line as it came, where it says more than the event does: its `id`, by which its writer knows it.
    pub(super) raw: Option<Vec<u8>>,
}

/// A line that cannot be used.
#[derive(Debug)]
pub(super) struct Unusable {
    /// Its `id`, as far as it could be read.
    pub(super) id: Option<Box<RawValue>>,
    pub(super) reason: Reason,
}

/// Why a line cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Reason {
    #[error("the line has more than the {limit} bytes allowed")]
    TooLong { limit: usize },
    #[error("the line is not valid UTF-8, from byte {at} on")]
    NotUtf8 { at: usize },
    #[error("the line is not valid JSON: {detail}")]
    NotJson { detail: String },
    #[error("the line is JSON, but no object")]
    NotObject,
    #[error("there is no field {field:?}{}", .nearest.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default())]
    Unknown { field: String, nearest: Option<&'static str> },
    #[error("the field {field:?} is missing")]
    Missing { field: &'static str },
    #[error("the field {field:?} is not valid: {detail}")]
    Invalid { field: &'static str, detail: String },
    #[error("the text is empty")]
    Empty,
}

impl Reason {
    /// A stable code, which has a page in the documentation.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "line-too-long",
            Self::NotUtf8 { .. } => "line-not-utf8",
            Self::NotJson { .. } => "line-not-json",
            Self::NotObject => "line-not-object",
            Self::Unknown { .. } => "line-field-unknown",
            Self::Missing { .. } => "line-field-missing",
            Self::Invalid { .. } => "line-field-invalid",
            Self::Empty => "line-text-empty",
        }
    }
}

impl Request {
    /// Reads a line. A blank one asks nothing.
    pub(super) fn read(line: Result<Vec<u8>, TooLong>) -> Result<Option<Self>, Unusable> {
        let unusable = |reason| Unusable { id: None, reason };
        let bytes = line.map_err(|TooLong { limit }| unusable(Reason::TooLong { limit }))?;
        let text = std::str::from_utf8(&bytes);
        let text = text.map_err(|error| unusable(Reason::NotUtf8 { at: error.valid_up_to() + 1 }))?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let fields = Fields::read(text).map_err(unusable)?;
        let id = fields.id().map_err(unusable)?;
        match fields.event() {
            Ok((event, stream)) => {
                let raw = Some(bytes).filter(|bytes| id.is_some() && bytes.len() <= RAW_BYTES);
                Ok(Some(Self { id, stream, event, raw }))
            }
            Err(reason) => Err(Unusable { id, reason }),
        }
    }
}

/// The fields of an object, in order, their values not yet looked at.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    fn read(text: &'a str) -> Result<Self, Reason> {
        let broken = |error: serde_json::Error| Reason::NotJson { detail: what_and_where(&error) };
        let value: &RawValue = serde_json::from_str(text).map_err(broken)?;
        if !value.get().starts_with('{') {
            return Err(Reason::NotObject);
        }
        let fields = serde_json::Deserializer::from_str(value.get()).deserialize_map(FieldsVisitor);
        fields.map(Self).map_err(broken)
    }

    /// The value of a field, unless it is null, which is as good as absent.
    fn get(&self, field: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().find(|(name, _)| name == field).map(|(_, value)| *value);
        found.filter(|value| value.get() != "null")
    }

    fn id(&self) -> Result<Option<Box<RawValue>>, Reason> {
        match self.get("id") {
            Some(id) if id.get().len() > ID_BYTES => Err(too_many("id", ID_BYTES)),
            id => Ok(id.map(ToOwned::to_owned)),
        }
    }

    fn value<T: DeserializeOwned>(&self, field: &'static str, kind: &str) -> Result<Option<T>, Reason> {
        let Some(value) = self.get(field) else { return Ok(None) };
        serde_json::from_str(value.get()).map(Some).map_err(|error| {
            // Of a text that is valid JSON so far only the escapes have not been looked at.
            let is_half = error.is_syntax() && value.get().starts_with('"');
            let detail = if is_half { HALF_A_CHARACTER.to_owned() } else { format!("it must be {kind}") };
            Reason::Invalid { field, detail }
        })
    }

    /// A name: a text of one line that is not blank.
    fn name(&self, field: &'static str) -> Result<Option<String>, Reason> {
        let invalid = |detail: &str| Err(Reason::Invalid { field, detail: detail.to_owned() });
        match self.value::<String>(field, "a text")? {
            Some(name) if name.trim().is_empty() => invalid("it is empty"),
            Some(name) if name.len() > NAME_BYTES => Err(too_many(field, NAME_BYTES)),
            Some(name) if name.contains(char::is_control) => invalid("it has control characters"),
            name => Ok(name),
        }
    }

    /// The event the fields make, and whether it is to be streamed.
    fn event(&self) -> Result<(Event, bool), Reason> {
        self.check_names()?;
        let session = self.name("session")?.ok_or(Reason::Missing { field: "session" })?;
        let text: Option<String> = self.value("text", "a text")?;
        let text = text.ok_or(Reason::Missing { field: "text" })?;
        if text.trim().is_empty() {
            return Err(Reason::Empty);
        }
        if text.contains('\0') {
            return Err(Reason::Invalid { field: "text", detail: "it has a NUL character".to_owned() });
        }
        let stream = self.value("stream", "true or false")?.unwrap_or(false);
        let mut event = Event::message(Stdio::NAME, session.as_str(), text);
        event.event_time = self.value::<Timestamp>("event_time", TIME)?;
        if let Some(id) = self.name("event_id")? {
            event.event_id = EventId::new(id);
        }
        event.session_id = Some(SessionId::new(session));
        Ok((event, stream))
    }

    /// A field that is misspelt or given twice would be lost without a word.
    fn check_names(&self) -> Result<(), Reason> {
        for (index, (name, _)) in self.0.iter().enumerate() {
            let Some(field) = FIELDS.iter().find(|field| *field == name) else {
                let near = FIELDS.iter().filter(|field| strsim::osa_distance(field, name) <= 2);
                let nearest = near.min_by_key(|field| strsim::osa_distance(field, name)).copied();
                return Err(Reason::Unknown { field: shortened(name), nearest });
            };
            if self.0[..index].iter().any(|(other, _)| other == name) {
                return Err(Reason::Invalid { field, detail: "it is given twice".to_owned() });
            }
        }
        Ok(())
    }
}

fn too_many(field: &'static str, limit: usize) -> Reason {
    Reason::Invalid { field, detail: format!("it has more than the {limit} bytes allowed") }
}

/// Enough of a name to be recognised.
fn shortened(name: &str) -> String {
    let short: String = name.chars().take(64).collect();
    if short == name { short } else { short + "…" }
}

/// What is wrong, and in which column: the error's own line is always the first.
fn what_and_where(error: &serde_json::Error) -> String {
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
