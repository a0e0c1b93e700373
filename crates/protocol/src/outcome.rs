//! What became of an accepted event.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ChannelName, Event, EventId, FailureCode, RunId};

/// The identity of an event: its id within its source and bot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct EventKey {
    /// Where it came from.
    pub source: ChannelName,
    /// The bot that received it; empty where the source has none.
    pub bot_id: String,
    /// Its id there.
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

/// The one end of an accepted event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The turn ended and there was something to say.
    Replied {
        /// The text of the reply.
        text: String,
    },
    /// The turn ended and nothing was to be said.
    Silent,
    /// Taken into another event's run.
    Folded {
        /// The run that took it in.
        run_id: RunId,
    },
    /// Admission let it go.
    Dropped,
    /// Its run was cancelled.
    Cancelled,
    /// The turn failed and the user was told.
    Failed {
        /// The notice, as it was sent.
        notice: String,
        /// The stable code of what went wrong, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<FailureCode>,
    },
}

impl Outcome {
    /// The name of the outcome as it is written.
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
