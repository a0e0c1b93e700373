//! Outbound messages: final messages that a channel sends to a chat.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ChannelName, ChatId, Content, Event, JsonObject, SessionId};

/// Final message for a chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutboundMessage {
    /// Session of the message.
    pub session_id: SessionId,
    /// Channel that sends the message.
    pub channel: ChannelName,
    /// Chat that receives the message.
    pub chat_id: ChatId,
    /// Reply, or notice of a failure.
    #[serde(default)]
    pub kind: OutboundKind,
    /// Content of the message.
    pub content: Content,
    /// Id of the message that this one replies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Further data for the channel.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub metadata: JsonObject,
}

/// Kind of outbound message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutboundKind {
    /// Reply of the agent.
    #[default]
    Reply,
    /// Notice of the host that something failed.
    Notice,
}

impl OutboundMessage {
    /// Metadata key of a message that may have been sent before.
    pub const POSSIBLE_DUPLICATE_KEY: &str = "possible_duplicate";

    /// Returns true if the message may have been sent before, by a process that died before it recorded the delivery.
    pub fn is_possible_duplicate(&self) -> bool {
        self.metadata.get(Self::POSSIBLE_DUPLICATE_KEY).and_then(serde_json::Value::as_bool).unwrap_or(false)
    }

    /// Marks the message as one that may have been sent before.
    pub fn mark_possible_duplicate(mut self) -> Self {
        self.metadata.insert(Self::POSSIBLE_DUPLICATE_KEY.to_owned(), serde_json::Value::Bool(true));
        self
    }

    /// Reply to the chat of an event.
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

    /// Notice to the chat of an event.
    pub fn notice(event: &Event, session_id: SessionId, text: impl Into<String>) -> Self {
        Self { kind: OutboundKind::Notice, ..Self::reply_to(event, session_id, text.into()) }
    }
}
