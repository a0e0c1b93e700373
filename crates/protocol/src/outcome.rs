//! Outcomes of accepted events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ChannelName, Event, EventId, FailureCode, RunId};

/// Identity of an event: its id within its source and bot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct EventKey {
    /// Source of the event.
    pub source: ChannelName,
    /// Bot that received the event; empty for a source without bots.
    pub bot_id: String,
    /// Id of the event at the source.
    pub event_id: EventId,
}

impl From<&Event> for EventKey {
    fn from(event: &Event) -> Self {
        Self {
            source: event.source.clone(),
            bot_id: event.bot_id.clone().unwrap_or_default(),
            event_id: event.event_id.clone(),
        }
    }
}

/// Final result of an accepted event. Every event is settled with exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The turn ended with a reply.
    Replied {
        /// Text of the reply.
        text: String,
    },
    /// The turn ended without a reply.
    Silent,
    /// Folded into the run of another event.
    Folded {
        /// Run that ingested the event.
        run_id: RunId,
    },
    /// Dropped by admission.
    Dropped,
    /// The run was cancelled.
    Cancelled,
    /// The turn failed and the user was notified.
    Failed {
        /// Text of the notice.
        notice: String,
        /// Stable code of the failure, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<FailureCode>,
    },
}

impl Outcome {
    /// Name of the outcome, as in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Replied { .. } => "replied",
            Self::Silent => "silent",
            Self::Folded { .. } => "folded",
            Self::Dropped => "dropped",
            Self::Cancelled => "cancelled",
            Self::Failed { .. } => "failed",
        }
    }
}
