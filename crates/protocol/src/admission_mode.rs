//! What a message does that comes while a turn is going on in its session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a message does that comes while a turn is going on in its session. In a session that is free it simply has its
/// turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionMode {
    /// It has a turn of its own, after those before it.
    #[default]
    FollowUp,
    /// It is taken into the run at its next step; a runner that cannot be steered leaves it for a turn of its own.
    Steer,
    /// It waits, and all that wait become one turn.
    Collect,
    /// The run is cancelled, and it has the next turn.
    Interrupt,
    /// It is let go.
    Drop,
}

impl AdmissionMode {
    /// Every mode.
    pub const MODES: [Self; 5] = [Self::FollowUp, Self::Steer, Self::Collect, Self::Interrupt, Self::Drop];

    /// The mode as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FollowUp => "follow_up",
            Self::Steer => "steer",
            Self::Collect => "collect",
            Self::Interrupt => "interrupt",
            Self::Drop => "drop",
        }
    }

    /// The mode of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::MODES.into_iter().find(|mode| mode.as_str() == text)
    }
}
