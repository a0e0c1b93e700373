//! Origins: the trust that the host puts in the source of an event.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Trust in the source of an event. Ordered: a trusted origin allows everything that a remote one allows.
///
/// Assigned by the host when it accepts the event, from the channel that submitted it, and stored beside the event. No
/// field of an event states an origin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventOrigin {
    /// Any other source: a chat platform, a plugin's channel, an envelope.
    #[default]
    Remote,
    /// The operator: the terminal, or a program on standard input.
    Trusted,
}

impl EventOrigin {
    /// Name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Remote => "remote",
            Self::Trusted => "trusted",
        }
    }
}

impl fmt::Display for EventOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
