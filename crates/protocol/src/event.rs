//! Events: the common form of everything that reaches the host, such as messages, membership changes and schedules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ChannelName, ChatId, Content, ContentPart, EventId, JsonObject, SessionId, Timestamp, WorkspaceId};

/// Stable names of event types. The set is open: sources may use others.
pub mod event_type {
    /// A user sent a message to the bot.
    pub const MESSAGE_RECEIVED: &str = "message.received";
    /// A user recalled a message.
    pub const MESSAGE_RECALLED: &str = "message.recalled";
    /// A member joined a group.
    pub const GROUP_MEMBER_JOINED: &str = "group.member_joined";
    /// A user sent the bot a friend request.
    pub const FRIEND_REQUEST_RECEIVED: &str = "friend.request_received";
    /// A scheduled entry became due.
    pub const SCHEDULE_TRIGGERED: &str = "schedule.triggered";
    /// A program called the API.
    pub const API_INVOKED: &str = "api.invoked";
}

/// Occurrence at a source, in the form that all parts of the host share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Unique within `(source, bot_id)`: a repeated id is the same event.
    pub event_id: EventId,
    /// Type of the event, such as `message.received`.
    pub event_type: String,
    /// Time of the event at the source, if the source provides it: RFC 3339, or seconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_event_time")]
    #[schemars(with = "Option<EventTimeForm>")]
    pub event_time: Option<Timestamp>,
    /// Source of the event: by default, the channel.
    pub source: ChannelName,
    /// Bot account that received the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot_id: Option<String>,
    /// Workspace of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Chat at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// Kind of the chat, if the source knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_kind: Option<ConversationKind>,
    /// Thread within the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Session of the event: the one that the source requests before it is resolved, the resolved one afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Originator of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<ActorRef>,
    /// Target of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectRef>,
    /// Text and attachments of the event.
    #[serde(default)]
    pub input: EventInput,
    /// Destination of replies.
    #[serde(default)]
    pub delivery: DeliveryTarget,
    /// Reference to the platform's own payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_ref: Option<RawPayloadRef>,
    /// Further data from the source.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

impl Event {
    /// Metadata key of the flag that marks a message as addressed to the bot: a mention, a reply to the bot, a private
    /// chat.
    pub const ADDRESSED_KEY: &str = "addressed";

    /// Returns true if the message is addressed to the bot. Sources that do not set the flag pass on addressed messages
    /// only.
    pub fn is_addressed(&self) -> bool {
        self.metadata.get(Self::ADDRESSED_KEY).and_then(serde_json::Value::as_bool).unwrap_or(true)
    }

    /// Returns true if the event is a message from a user, or from a program on behalf of a user.
    pub fn is_message(&self) -> bool {
        matches!(self.event_type.as_str(), event_type::MESSAGE_RECEIVED | event_type::API_INVOKED)
    }

    /// Line of a comma command, if the event is one. Only messages can be commands, whatever the text of other events.
    pub fn command_line(&self) -> Option<&str> {
        self.input.command_line().filter(|_| self.is_message())
    }

    /// Message from a channel and chat, with a new event id.
    pub fn message(channel: impl Into<ChannelName>, chat_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            event_id: EventId::generate(),
            event_type: event_type::MESSAGE_RECEIVED.to_owned(),
            event_time: None,
            source: channel.into(),
            bot_id: None,
            workspace_id: None,
            conversation_id: Some(chat_id.into()),
            conversation_kind: None,
            thread_id: None,
            session_id: None,
            actor: None,
            subject: None,
            input: EventInput { text: Some(text.into()), contents: Vec::new() },
            delivery: DeliveryTarget::default(),
            raw_ref: None,
            metadata: JsonObject::new(),
        }
    }

    /// Channel of replies: `delivery.output_channel`, or else the source.
    pub fn channel(&self) -> ChannelName {
        self.delivery.output_channel.clone().unwrap_or_else(|| self.source.clone())
    }

    /// Chat of replies: `delivery.chat_id`, or else the conversation, or else `default`.
    pub fn chat_id(&self) -> ChatId {
        let chat = self.delivery.chat_id.clone();
        chat.unwrap_or_else(|| ChatId::new(self.conversation_id.as_deref().unwrap_or("default")))
    }

    /// Session to use if no hook resolves another: the event's own, or else `source:conversation_id`, each `default` if
    /// absent.
    pub fn fallback_session(&self) -> SessionId {
        if let Some(session) = self.session_id.as_ref().filter(|s| !s.as_str().is_empty()) {
            return session.clone();
        }
        let or_default = |text: &str| if text.is_empty() { "default".to_owned() } else { text.to_owned() };
        let channel = or_default(self.source.as_str());
        let chat = or_default(self.conversation_id.as_deref().unwrap_or_default());
        SessionId::new(format!("{channel}:{chat}"))
    }
}

/// Kind of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConversationKind {
    /// One person and the bot.
    Private,
    /// Several people and the bot.
    Group,
}

/// Forms of the time of an event.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a time must be a text such as \"2026-11-15T20:57:42Z\", or seconds since the epoch")]
enum EventTimeForm {
    /// RFC 3339.
    Text(Timestamp),
    /// Seconds since the epoch.
    Seconds(i64),
}

/// Time of an event, as sources write it: RFC 3339, or seconds since the epoch.
///
/// ```
/// use capstan_protocol::EventTime;
///
/// let EventTime(time) = serde_json::from_str("1763240262").unwrap();
/// assert_eq!(time, "2025-11-15T20:57:42Z".parse().unwrap());
/// // Milliseconds would be a time after the year 9999.
/// assert!(serde_json::from_str::<EventTime>("1763240262000").is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "EventTimeForm")]
pub struct EventTime(pub Timestamp);

impl TryFrom<EventTimeForm> for EventTime {
    type Error = String;

    fn try_from(form: EventTimeForm) -> Result<Self, Self::Error> {
        match form {
            EventTimeForm::Text(time) => Ok(Self(time)),
            EventTimeForm::Seconds(seconds) => {
                let millis = seconds.saturating_mul(1000);
                let time = Timestamp::from_millis(millis);
                // A time outside of the range of timestamps is clamped.
                if time.as_millis() == millis {
                    return Ok(Self(time));
                }
                Err(format!("{seconds} seconds since the epoch are not in the years 0 to 9999"))
            }
        }
    }
}

fn deserialize_event_time<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let time = Option::<EventTime>::deserialize(deserializer)?;
    Ok(time.map(|EventTime(time)| time))
}

/// Text and attachments of an event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventInput {
    /// Text, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Further parts: images and other attachments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<ContentPart>,
}

impl EventInput {
    /// Plain text; empty if there is none.
    pub fn plain_text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Line of a comma command, without the comma; `None` if the text is not a command.
    pub fn command_line(&self) -> Option<&str> {
        parse_command_line(self.plain_text())
    }

    /// The input in words: an attachment that is not text becomes a text in brackets.
    #[must_use]
    pub fn in_words(&self) -> Self {
        Self { contents: self.contents.iter().map(ContentPart::in_words).collect(), ..self.clone() }
    }

    /// Text and attachments as one content.
    pub fn content(&self) -> Content {
        if self.contents.is_empty() {
            return Content::Text(self.plain_text().to_owned());
        }
        let text = self.text.iter().map(ContentPart::from_text);
        Content::Parts(text.chain(self.contents.iter().cloned()).collect())
    }
}

/// Line of a comma command, if the text is one: `,help` is the command `help`.
pub fn parse_command_line(text: &str) -> Option<&str> {
    let line = text.trim_start().strip_prefix(',')?.trim();
    (!line.is_empty()).then_some(line)
}

/// Destination of replies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryTarget {
    /// Channel for replies, if it is not the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_channel: Option<ChannelName>,
    /// Chat for replies, if it is not the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<ChatId>,
    /// Message to reply to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
}

/// Originator of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActorRef {
    /// Id at the source.
    pub id: String,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Type of the originator: `user`, `bot`, `system`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// Target of an event: a message, a member, a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubjectRef {
    /// Type of the target.
    #[serde(rename = "type")]
    pub kind: String,
    /// Id at the source.
    pub id: String,
    /// Further data about the target.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub data: JsonObject,
}

/// Reference to the platform's own payload in the store: part of the acceptance record if it is short, otherwise a
/// blob.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RawPayloadRef {
    /// Hash of the payload.
    pub blob: crate::BlobHash,
}

#[cfg(test)]
mod tests {
    use super::Event;

    #[test]
    fn g01_the_time_of_an_event_is_text_or_seconds_since_the_epoch() {
        let event_with = |time: serde_json::Value| {
            let event = serde_json::json!({
                "event_id": "1", "event_type": "message.received", "source": "x", "event_time": time,
                "actor": {"id": "7", "type": "bot"}, "subject": {"type": "message", "id": "1", "data": {"k": 1}},
            });
            serde_json::from_value::<Event>(event)
        };
        let from_text = event_with("1970-01-01T00:01:00Z".into()).unwrap();
        assert_eq!(event_with(60.into()).unwrap(), from_text);
        assert_eq!(from_text.actor.unwrap().kind.as_deref(), Some("bot"));
        assert_eq!(from_text.subject.unwrap().data["k"], 1);
        for out_of_range in [1_763_240_262_000_i64, -62_167_219_201, i64::MAX, i64::MIN] {
            let error = event_with(out_of_range.into()).unwrap_err().to_string();
            assert!(error.contains("not in the years 0 to 9999"), "{error}");
        }
        assert!(event_with((-62_167_219_200_i64).into()).is_ok());
        assert!(event_with(true.into()).unwrap_err().to_string().contains("seconds since the epoch"));
    }

    #[test]
    fn t02_fallback_session_is_channel_and_chat_each_default_if_absent() {
        let mut event = Event::message("telegram", "42", "hi");
        assert_eq!(event.fallback_session().as_str(), "telegram:42");
        event.conversation_id = None;
        assert_eq!(event.fallback_session().as_str(), "telegram:default");
        event.source = "".into();
        assert_eq!(event.fallback_session().as_str(), "default:default");
        event.session_id = Some("mine".into());
        assert_eq!(event.fallback_session().as_str(), "mine");
    }
}
