//! The envelope every inbound thing becomes: a message, a member who joined, a schedule that fired.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ChannelName, ChatId, Content, ContentPart, EventId, JsonObject, SessionId, Timestamp, WorkspaceId};

/// Stable names of event types. The set is open: a source may use others.
pub mod event_type {
    /// Somebody said something to the bot.
    pub const MESSAGE_RECEIVED: &str = "message.received";
    /// Somebody took a message back.
    pub const MESSAGE_RECALLED: &str = "message.recalled";
    /// Somebody joined a group.
    pub const GROUP_MEMBER_JOINED: &str = "group.member_joined";
    /// Somebody wants to be a friend of the bot.
    pub const FRIEND_REQUEST_RECEIVED: &str = "friend.request_received";
    /// An entry of the schedule fired.
    pub const SCHEDULE_TRIGGERED: &str = "schedule.triggered";
    /// A program asked.
    pub const API_INVOKED: &str = "api.invoked";
}

/// Something that happened, in the one form the host knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Unique within `(source, bot_id)`: the same id twice is the same event.
    pub event_id: EventId,
    /// What happened, such as `message.received`.
    pub event_type: String,
    /// When it happened at the source, if the source says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_time: Option<Timestamp>,
    /// Where it came from: the channel, by default.
    pub source: ChannelName,
    /// Which bot account received it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot_id: Option<String>,
    /// The workspace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// The chat at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// The thread within the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The session it belongs to: the source's wish before it is resolved, the resolved id afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<ActorRef>,
    /// What it was done to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectRef>,
    /// What was said or sent with it.
    #[serde(default)]
    pub input: EventInput,
    /// Where an answer goes.
    #[serde(default)]
    pub delivery: DeliveryTarget,
    /// The payload of the platform, by reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_ref: Option<RawPayloadRef>,
    /// Whatever else the source wants to pass on.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

impl Event {
    /// The metadata key that says whether a message is addressed to the bot: a mention, a reply to it, a private chat.
    pub const ADDRESSED_KEY: &str = "addressed";

    /// Whether the message is addressed to the bot. A source that does not say only passes on what is.
    pub fn is_addressed(&self) -> bool {
        self.metadata.get(Self::ADDRESSED_KEY).and_then(serde_json::Value::as_bool).unwrap_or(true)
    }

    /// Whether somebody said something to the bot, or a program did in their place.
    pub fn is_message(&self) -> bool {
        matches!(self.event_type.as_str(), event_type::MESSAGE_RECEIVED | event_type::API_INVOKED)
    }

    /// The line of a command, if the event is one. What merely happened commands nothing, whatever it says.
    pub fn command_line(&self) -> Option<&str> {
        self.input.command_line().filter(|_| self.is_message())
    }

    /// A message from a channel and chat, with a new event id.
    pub fn message(channel: impl Into<ChannelName>, chat_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            event_id: EventId::generate(),
            event_type: event_type::MESSAGE_RECEIVED.to_owned(),
            event_time: None,
            source: channel.into(),
            bot_id: None,
            workspace_id: None,
            conversation_id: Some(chat_id.into()),
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

    /// The channel an answer goes to: `delivery.output_channel`, else the source.
    pub fn channel(&self) -> ChannelName {
        self.delivery.output_channel.clone().unwrap_or_else(|| self.source.clone())
    }

    /// The chat an answer goes to: `delivery.chat_id`, else the conversation, else `default`.
    pub fn chat_id(&self) -> ChatId {
        let chat = self.delivery.chat_id.clone();
        chat.unwrap_or_else(|| ChatId::new(self.conversation_id.as_deref().unwrap_or("default")))
    }

    /// The session this event belongs to when nobody says otherwise: its own, else `channel:chat_id`, each `default` when absent.
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

/// What an event says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventInput {
    /// The text, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Further parts: images and other attachments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<ContentPart>,
}

impl EventInput {
    /// The plain text, empty when there is none.
    pub fn plain_text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// The line of a command, which starts with a comma, without the comma; nothing if this is no command.
    pub fn command_line(&self) -> Option<&str> {
        parse_command_line(self.plain_text())
    }

    /// Text and parts as one content.
    pub fn content(&self) -> Content {
        if self.contents.is_empty() {
            return Content::Text(self.plain_text().to_owned());
        }
        let text = self.text.iter().map(ContentPart::text);
        Content::Parts(text.chain(self.contents.iter().cloned()).collect())
    }
}

/// The line of a command, if the text is one: `,help` is the command `help`.
pub fn parse_command_line(text: &str) -> Option<&str> {
    let line = text.trim_start().strip_prefix(',')?.trim();
    (!line.is_empty()).then_some(line)
}

/// Where an answer goes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryTarget {
    /// The channel to answer on, when it is not the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_channel: Option<ChannelName>,
    /// The chat to answer in, when it is not the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<ChatId>,
    /// The message to answer to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
}

/// Who did something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActorRef {
    /// The id at the source.
    pub id: String,
    /// A name to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What something was done to: a message, a member, a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubjectRef {
    /// What kind of thing it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The id at the source.
    pub id: String,
}

/// The platform's own payload, kept in the store: with the event's acceptance if it is short, otherwise as a blob.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RawPayloadRef {
    /// The hash of its content.
    pub blob: crate::BlobHash,
}

#[cfg(test)]
mod tests {
    use super::Event;

    #[test]
    fn t02_the_fallback_session_is_channel_and_chat_each_default_when_absent() {
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
