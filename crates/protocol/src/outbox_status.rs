//! Delivery status of a message in the outbox.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Delivery status of a message in the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum OutboxStatus {
    /// Waiting for its next attempt.
    Waiting {
        /// Number of attempts so far.
        #[serde(default, skip_serializing_if = "is_zero")]
        attempts: u32,
        /// An earlier attempt may have succeeded.
        #[serde(rename = "fate_unknown", default, skip_serializing_if = "std::ops::Not::not")]
        may_have_been_sent: bool,
        /// Failure of the last attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Accepted by the channel.
    Sent {
        /// The message may have been sent more than once.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        possible_duplicate: bool,
    },
    /// Dead letter: no longer retried; its text stays on the tape.
    Undelivered {
        /// Reason why the message was given up, such as an error of the channel.
        reason: String,
    },
    /// Held for the operator: it waited too long, or may have been sent after the backup that was restored.
    Held {
        /// Reason for holding the message.
        reason: String,
        /// An earlier attempt may have succeeded.
        #[serde(rename = "fate_unknown", default, skip_serializing_if = "std::ops::Not::not")]
        may_have_been_sent: bool,
    },
    /// Held message or dead letter that the operator dropped, or dead letter that `capstan doctor --repair` acknowledged.
    #[serde(rename = "noted")]
    Acknowledged {
        /// Reason why the message was held or given up.
        reason: String,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "`skip_serializing_if` passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl OutboxStatus {
    /// Status of a message that has not been attempted.
    pub const fn waiting() -> Self {
        Self::Waiting { attempts: 0, may_have_been_sent: false, reason: None }
    }

    /// Status of a sent message that is not a possible duplicate.
    pub const fn sent() -> Self {
        Self::Sent { possible_duplicate: false }
    }
}
