//! Data of `event.accepted`.

use capstan_protocol::{Binding, Event, EventOrigin};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::{Entry, TapeEvent, TapeEventKind};

/// Source that the versions before stored origins trusted.
const FORMERLY_TRUSTED_SOURCE: &str = "cli";
/// Reason given for events that were accepted before the reason itself was stored.
const UNSTORED_REASON: &str = "a hook failed before the turn";

/// An accepted event, with everything that recovery needs to process it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventAcceptance {
    /// The event, with its session resolved.
    pub event: Box<Event>,
    /// Origin that the host assigned; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_origin")]
    pub origin: Option<EventOrigin>,
    /// Message of the platform, if it is short. A longer one is a blob, referred to by the event's `raw_ref`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// Binding that came with the event, which replaces binding resolution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<StoredBinding>,
    /// Reason why the event must not have a turn.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_reason")]
    pub without_turn: Option<String>,
}

impl EventAcceptance {
    /// Acceptance of an event without further data.
    pub fn new(event: Event) -> Self {
        Self { event: Box::new(event), origin: None, raw: None, binding: None, without_turn: None }
    }

    /// Origin of the event. An event without a stored origin is judged by its source, as by the version that accepted it.
    pub fn origin(&self) -> EventOrigin {
        match self.origin {
            Some(origin) => origin,
            None if self.event.source.as_str() == FORMERLY_TRUSTED_SOURCE => EventOrigin::Trusted,
            None => EventOrigin::Remote,
        }
    }

    /// Reads the acceptance that an entry records. `None` for other entries and unreadable data.
    pub fn from_entry(entry: &Entry) -> Option<Self> {
        // Checked first, because other events are numerous and may be large.
        entry.event_kind().filter(|kind| *kind == TapeEventKind::EventAccepted)?;
        match TapeEvent::from_entry(entry)? {
            TapeEvent::EventAccepted(acceptance) => Some(acceptance),
            _ => None,
        }
    }
}

/// Binding as stored on the tape. It is parsed on demand, because an unreadable binding of another version must not
/// make its event unreadable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoredBinding(Value);

impl StoredBinding {
    /// Reads the binding.
    pub fn parse(&self) -> Result<Binding, serde_json::Error> {
        Binding::deserialize(&self.0)
    }
}

impl From<&Binding> for StoredBinding {
    fn from(binding: &Binding) -> Self {
        Self(json!(binding))
    }
}

/// Reads an origin. One that a later version defined is remote here.
fn read_origin<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<EventOrigin>, D::Error> {
    let origin = Value::deserialize(deserializer)?;
    Ok(Some(EventOrigin::deserialize(&origin).unwrap_or(EventOrigin::Remote)))
}

/// Reads a reason. Tapes from before the reason was stored have `true`.
fn read_reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(reason) => Some(reason),
        Value::Bool(true) => Some(UNSTORED_REASON.to_owned()),
        _ => None,
    })
}
