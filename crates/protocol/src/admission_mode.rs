//! Admission of messages that arrive during a turn.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Handling of a message that arrives while its session is running a turn. An idle session starts a turn at once,
/// whatever the mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionMode {
    /// Queue the message for its own turn, in order of arrival.
    #[default]
    FollowUp,
    /// Pass the message to the active run at its next step. If the runner does not support steering, the message gets
    /// its own turn.
    Steer,
    /// Queue the message; all queued messages become one turn.
    Collect,
    /// Cancel the active run; the message gets the next turn.
    Interrupt,
    /// Drop the message.
    Drop,
}

impl AdmissionMode {
    /// Every mode.
    pub const MODES: [Self; 5] = [Self::FollowUp, Self::Steer, Self::Collect, Self::Interrupt, Self::Drop];

    /// Name of the mode, as in JSON and configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FollowUp => "follow_up",
            Self::Steer => "steer",
            Self::Collect => "collect",
            Self::Interrupt => "interrupt",
            Self::Drop => "drop",
        }
    }

    /// Mode with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::MODES.into_iter().find(|mode| mode.as_str() == text)
    }
}
