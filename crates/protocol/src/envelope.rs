//! Strict parsing of event envelopes written by users and programs.
//!
//! An envelope is the JSON form of an [`Event`] with defaults for most fields. Unknown fields are rejected, so that a
//! misspelled field does not go unnoticed.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    ActorRef, ChannelName, ContentPart, ConversationKind, DeliveryTarget, Event, EventId, EventInput, EventTime,
    JsonObject, SessionId, SubjectRef, WorkspaceId,
};

/// Error in an event envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The envelope is not a JSON object.
    #[error("an envelope is a JSON object")]
    NotObject,
    /// A required field is missing.
    #[error("the field {field} is missing")]
    Missing {
        /// Path of the field.
        field: &'static str,
    },
    /// A field is unknown.
    #[error("there is no field {field}; known: {known}")]
    Unknown {
        /// Path of the field.
        field: String,
        /// Known fields at this level.
        known: String,
    },
    /// A field has an invalid value.
    #[error("the field {field} is not valid: {detail}")]
    Invalid {
        /// Path of the field.
        field: String,
        /// Description of the problem.
        detail: String,
    },
}

/// Known fields of nested objects.
const NESTED_ENVELOPE_FIELDS: [(&str, &[&str]); 4] = [
    ("input", &["text", "contents"]),
    ("actor", &["id", "name", "type"]),
    ("subject", &["type", "id", "data"]),
    ("delivery", &["output_channel", "chat_id", "reply_to"]),
];
/// Types of content parts that an input may have.
const CONTENT_PART_TYPES: [&str; 6] = ["text", "image_url", "input_image", "input_audio", "video_url", "file"];
/// Maximum length of an id or name, in bytes.
const MAX_ENVELOPE_NAME_LEN: usize = 1024;

impl Event {
    /// Fields of an envelope, required ones first.
    pub const ENVELOPE_FIELDS: [&str; 15] = [
        "event_type",
        "source",
        "input",
        "event_id",
        "event_time",
        "bot_id",
        "workspace_id",
        "conversation_id",
        "conversation_kind",
        "thread_id",
        "session_id",
        "actor",
        "subject",
        "delivery",
        "metadata",
    ];

    /// Parses an envelope. `event_type`, `source` and `input` are required; `event_id` is generated if absent, and all
    /// other fields default to empty.
    pub fn from_envelope(envelope: Value) -> Result<Self, EnvelopeError> {
        let Value::Object(mut fields) = envelope else { return Err(EnvelopeError::NotObject) };
        check_known_fields("", fields.keys(), &Self::ENVELOPE_FIELDS)?;
        for (field, inner) in NESTED_ENVELOPE_FIELDS {
            match fields.get(field) {
                Some(Value::Object(value)) => check_known_fields(&format!("{field}."), value.keys(), inner)?,
                Some(Value::Null) | None => {}
                Some(_) => {
                    let (field, detail) = (field.to_owned(), "it must be an object".to_owned());
                    return Err(EnvelopeError::Invalid { field, detail });
                }
            }
        }
        let required = ["event_type", "source", "input"];
        if let Some(field) = required.into_iter().find(|field| fields.get(*field).is_none_or(Value::is_null)) {
            return Err(EnvelopeError::Missing { field });
        }
        let event = Self {
            event_type: take_field::<Option<String>>(&mut fields, "event_type")?.unwrap_or_default(),
            source: take_field::<Option<ChannelName>>(&mut fields, "source")?.unwrap_or_else(|| ChannelName::new("")),
            input: take_field::<Option<EventInput>>(&mut fields, "input")?.unwrap_or_default(),
            event_id: take_field::<Option<EventId>>(&mut fields, "event_id")?.unwrap_or_else(EventId::generate),
            event_time: take_field::<Option<EventTime>>(&mut fields, "event_time")?.map(|EventTime(time)| time),
            bot_id: take_field::<Option<String>>(&mut fields, "bot_id")?,
            workspace_id: take_field::<Option<WorkspaceId>>(&mut fields, "workspace_id")?,
            conversation_id: take_field::<Option<String>>(&mut fields, "conversation_id")?,
            conversation_kind: take_field::<Option<ConversationKind>>(&mut fields, "conversation_kind")?,
            thread_id: take_field::<Option<String>>(&mut fields, "thread_id")?,
            session_id: take_field::<Option<SessionId>>(&mut fields, "session_id")?,
            actor: take_field::<Option<ActorRef>>(&mut fields, "actor")?,
            subject: take_field::<Option<SubjectRef>>(&mut fields, "subject")?,
            delivery: take_field::<Option<DeliveryTarget>>(&mut fields, "delivery")?.unwrap_or_default(),
            raw_ref: None,
            metadata: take_field::<Option<JsonObject>>(&mut fields, "metadata")?.unwrap_or_default(),
        };
        event.check_names()?;
        event.input.contents.iter().enumerate().try_for_each(|(index, part)| check_part(index, part))?;
        Ok(event)
    }

    fn check_names(&self) -> Result<(), EnvelopeError> {
        let invalid = |field: &str, detail: &str| {
            Err(EnvelopeError::Invalid { field: field.to_owned(), detail: detail.to_owned() })
        };
        let is_type = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        if self.event_type.is_empty() || self.event_type.len() > 128 || !self.event_type.chars().all(is_type) {
            return invalid("event_type", "it must be a lower-case name such as message.received");
        }
        let names = [
            ("source", Some(self.source.as_str())),
            ("event_id", Some(self.event_id.as_str())),
            ("bot_id", self.bot_id.as_deref()),
            ("workspace_id", self.workspace_id.as_ref().map(WorkspaceId::as_str)),
            ("conversation_id", self.conversation_id.as_deref()),
            ("thread_id", self.thread_id.as_deref()),
            ("session_id", self.session_id.as_ref().map(SessionId::as_str)),
            ("actor.id", self.actor.as_ref().map(|actor| actor.id.as_str())),
            ("subject.id", self.subject.as_ref().map(|subject| subject.id.as_str())),
        ];
        for (field, name) in names {
            let Some(name) = name else { continue };
            if name.trim().is_empty() {
                return invalid(field, "it is empty");
            }
            if name.len() > MAX_ENVELOPE_NAME_LEN || name.contains(char::is_control) {
                return invalid(field, "it is too long, or contains control characters");
            }
        }
        Ok(())
    }
}

/// Rejects parts that no provider client can send to a model, and which would otherwise be ignored silently.
fn check_part(index: usize, part: &ContentPart) -> Result<(), EnvelopeError> {
    let ContentPart::Other(fields) = part else { return Ok(()) };
    let invalid = |detail: String| {
        let field = format!("input.contents[{index}]");
        Err(EnvelopeError::Invalid { field, detail })
    };
    let Some(kind) = fields.get("type").and_then(Value::as_str) else {
        return invalid(format!("it has no type; known: {}", CONTENT_PART_TYPES.join(", ")));
    };
    if !CONTENT_PART_TYPES.contains(&kind) {
        return invalid(format!("there is no type {kind:?}; known: {}", CONTENT_PART_TYPES.join(", ")));
    }
    let field = if kind == "input_image" { "image_url" } else { kind };
    let content = fields.get(field);
    let is_valid = match kind {
        "text" => content.is_some_and(Value::is_string),
        "image_url" | "video_url" => content.is_some_and(|media| media["url"].is_string()),
        "input_image" => content.is_some_and(|image| image.is_string() || image["url"].is_string()),
        _ => content.is_some_and(Value::is_object),
    };
    if is_valid { Ok(()) } else { invalid(format!("a part of type {kind} needs a valid {field}")) }
}

fn check_known_fields<'a>(
    prefix: &str,
    mut fields: impl Iterator<Item = &'a String>,
    known: &[&str],
) -> Result<(), EnvelopeError> {
    match fields.find(|field| !known.contains(&field.as_str())) {
        None => Ok(()),
        Some(field) => Err(EnvelopeError::Unknown { field: format!("{prefix}{field}"), known: known.join(", ") }),
    }
}

fn take_field<T: DeserializeOwned>(fields: &mut JsonObject, field: &str) -> Result<T, EnvelopeError> {
    let value = fields.remove(field).unwrap_or_default();
    serde_json::from_value(value)
        .map_err(|error| EnvelopeError::Invalid { field: field.to_owned(), detail: error.to_string() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Event;

    fn parse_envelope(envelope: Value) -> Result<Event, String> {
        Event::from_envelope(envelope).map_err(|error| error.to_string())
    }

    #[test]
    fn g01_envelope_needs_a_type_a_source_and_an_input() {
        let event =
            parse_envelope(json!({"event_type": "api.invoked", "source": "api", "input": {"text": "go"}})).unwrap();
        assert_eq!((event.event_type.as_str(), event.input.plain_text()), ("api.invoked", "go"));
        assert!(!event.event_id.as_str().is_empty());
        for missing in ["event_type", "source", "input"] {
            let mut envelope = json!({"event_type": "api.invoked", "source": "api", "input": {}});
            envelope.as_object_mut().unwrap().remove(missing);
            assert_eq!(parse_envelope(envelope), Err(format!("the field {missing} is missing")));
        }
    }

    #[test]
    fn g01_content_part_that_no_model_can_read_is_rejected() {
        let with = |part: Value| {
            let text = json!({"type": "text", "text": "look"});
            parse_envelope(json!({"event_type": "api.invoked", "source": "api", "input": {"contents": [text, part]}}))
        };
        for (part, reason) in [
            (json!({"foo": 1}), "input.contents[1] is not valid: it has no type; known: text, image_url"),
            (json!({"type": "nope"}), "input.contents[1] is not valid: there is no type \"nope\"; known: text"),
            (json!({"type": "text"}), "a part of type text needs a valid text"),
            (json!({"type": "image_url", "image_url": "x"}), "a part of type image_url needs a valid image_url"),
            (json!({"type": "file", "file": "x"}), "a part of type file needs a valid file"),
            (json!(5), "input is not valid: a part must be an object, such as"),
        ] {
            let error = with(part.clone()).unwrap_err();
            assert!(error.contains(reason), "{part}: {error}");
        }
        for part in [
            json!({"type": "text", "text": "cached", "cache_control": {"type": "ephemeral"}}),
            json!({"type": "image_url", "image_url": {"url": "https://images.example/a.png"}}),
            json!({"type": "input_image", "image_url": "https://images.example/a.png"}),
            json!({"type": "video_url", "video_url": {"url": "https://videos.example/a.mp4"}}),
            json!({"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}),
        ] {
            assert!(with(part.clone()).is_ok(), "{part}");
        }
    }

    #[test]
    fn g01_an_envelope_has_the_type_of_its_actor_and_the_data_of_its_subject() {
        let event = parse_envelope(json!({
            "event_type": "group.member_joined", "source": "api", "input": {},
            "conversation_kind": "group", "actor": {"id": "7", "type": "user"}, "subject": {"id": "8", "type": "user", "data": {"role": "admin"}},
        }));
        let event = json!(event.unwrap());
        assert_eq!((&event["actor"]["type"], &event["subject"]["data"]["role"]), (&json!("user"), &json!("admin")));
        assert_eq!(event["conversation_kind"], "group");
    }

    #[test]
    fn g01_envelope_errors_name_the_field_and_the_problem() {
        let with = |field: &str, value: Value| {
            let mut envelope = json!({"event_type": "api.invoked", "source": "api", "input": {"text": "go"}});
            envelope[field] = value;
            parse_envelope(envelope).unwrap_err()
        };
        assert_eq!(parse_envelope(json!([])), Err("an envelope is a JSON object".to_owned()));
        assert!(with("sauce", json!("x")).starts_with("there is no field sauce; known: event_type, source"));
        assert!(with("actor", json!({"id": "1", "nick": "x"})).starts_with("there is no field actor.nick; known: id"));
        assert!(with("actor", json!("ann")).contains("actor is not valid: it must be an object"));
        assert!(with("event_type", json!("Message Received")).contains("event_type is not valid"));
        assert!(with("conversation_kind", json!("crowd")).contains("conversation_kind is not valid: unknown variant"));
        assert!(with("thread_id", json!(7)).contains("thread_id is not valid"));
        assert!(with("conversation_id", json!(" ")).contains("conversation_id is not valid: it is empty"));
        assert!(with("event_time", json!("yesterday")).contains("event_time is not valid"));
        assert!(with("event_time", json!(1_763_240_262_000_i64)).contains("event_time is not valid: 1763240262000"));
        assert!(with("metadata", json!([])).contains("metadata is not valid"));
    }
}
