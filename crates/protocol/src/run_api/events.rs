//! Requests and responses of `events.*`: the event log with outcomes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TapeEntry, base64_bytes};
use crate::{Event, EventId, EventKey, OutboundMessage, OutboxStatus, Outcome, RunId, SessionId, Timestamp};

/// Request for an event by its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventGetCall {
    /// Id of the event, at the source of the run's own event.
    pub id: EventId,
}

/// Request for a range of the raw payload of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RawPayloadCall {
    /// Id of the event, at the source of the run's own event.
    pub id: EventId,
    /// First byte of the range.
    #[serde(default)]
    pub offset: u64,
    /// Maximum length of the range.
    pub limit: u64,
}

/// A range of the raw payload of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RawPayloadPart {
    /// Size of the whole payload.
    pub bytes: u64,
    /// First byte of the range.
    pub offset: u64,
    /// The range, base64 in JSON. Shorter than the limit where the payload ends.
    #[serde(with = "base64_bytes")]
    #[schemars(with = "String")]
    pub content: Vec<u8>,
}

/// An accepted event and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventRecord {
    /// The event.
    pub event: Event,
    /// Session of the event.
    pub session_id: SessionId,
    /// Time of acceptance.
    pub accepted_at: Timestamp,
    /// Outcome of the event; absent while it is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Run that settled the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

/// One item of the event log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
// The key `fact` is historical.
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum EventLogItem {
    /// An event was accepted.
    Inbound {
        /// Entry of the item.
        entry: TapeEntry,
        /// The event.
        event: Box<Event>,
    },
    /// Outcome of an event.
    Outcome {
        /// The event.
        event: EventKey,
        /// Outcome of the event; absent while it is in flight.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// Run that settled the event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
    },
    /// A message of the event's turn, and its delivery status.
    Delivery {
        /// Row of the outbox.
        row: u64,
        /// Time at which the message was staged.
        staged_at: Timestamp,
        /// Event whose turn sent the message.
        event: EventKey,
        /// The message.
        message: Box<OutboundMessage>,
        /// Current delivery status.
        delivery: OutboxStatus,
    },
    /// Tool calls and results, commands, platform actions, handoffs, dispatched messages, errors.
    Activity {
        /// Entry of the item.
        entry: TapeEntry,
    },
}

impl EventLogItem {
    /// Name of the item; for an activity the name of its event, or its kind.
    pub fn name(&self) -> &str {
        match self {
            Self::Inbound { .. } => "inbound",
            Self::Outcome { .. } => "outcome",
            Self::Delivery { .. } => "delivery",
            Self::Activity { entry } => match entry.name() {
                Some(name) if entry.kind == "event" => name,
                _ => &entry.kind,
            },
        }
    }
}
