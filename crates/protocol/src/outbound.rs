//! A message on its way to a channel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ChannelName, ChatId, Content, Event, JsonObject, SessionId};

/// A final message for a chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutboundMessage {
    /// The session it answers.
    pub session_id: SessionId,
    /// The channel that sends it.
    pub channel: ChannelName,
    /// The chat it is for.
    pub chat_id: ChatId,
    /// Whether it is a reply or a notice that something failed.
    #[serde(default)]
    pub kind: OutboundKind,
    /// What it says.
    pub content: Content,
    /// The message it answers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Whatever else the channel should know.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

/// What an outbound message is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutboundKind {
    /// A reply of the agent.
    #[default]
    Reply,
    /// A word from the host that something failed.
    Notice,
}

impl OutboundMessage {
    /// The metadata key of a message that may have been sent before.
    pub const POSSIBLE_DUPLICATE_KEY: &str = "possible_duplicate";

    /// Whether the message may have been sent before, by a process that died before it could tell.
    pub fn is_possible_duplicate(&self) -> bool {
        self.metadata.get(Self::POSSIBLE_DUPLICATE_KEY).and_then(serde_json::Value::as_bool).unwrap_or(false)
    }

    /// The same message, marked as one that may have been sent before.
    pub fn mark_possible_duplicate(mut self) -> Self {
        self.metadata.insert(Self::POSSIBLE_DUPLICATE_KEY.to_owned(), serde_json::Value::Bool(true));
        self
    }

    /// A reply to the chat an event came from.
    pub fn reply_to(event: &Event, session_id: SessionId, content: impl Into<Content>) -> Self {
        Self {
            session_id,
            channel: event.channel(),
            chat_id: event.chat_id(),
            kind: OutboundKind::Reply,
            content: content.into(),
            reply_to: event.delivery.reply_to.clone(),
            metadata: JsonObject::new(),
        }
    }

    /// A notice to the chat an event came from.
    pub fn notice(event: &Event, session_id: SessionId, text: impl Into<String>) -> Self {
        Self { kind: OutboundKind::Notice, ..Self::reply_to(event, session_id, text.into()) }
    }
}
