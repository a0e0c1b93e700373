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
        /// One of the attempts may have succeeded.
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
    /// Dead letter: not retried any more, its text stays readable.
    Undelivered {
        /// Failure that the channel reported.
        reason: String,
    },
    /// Held for the operator: it waited too long to be sent without a decision.
    Held {
        /// Reason of the delay.
        reason: String,
        /// One of the attempts may have succeeded.
        #[serde(rename = "fate_unknown", default, skip_serializing_if = "std::ops::Not::not")]
        may_have_been_sent: bool,
    },
    /// Dead letter that the operator dropped (`capstan outbox drop`).
    #[serde(rename = "noted")]
    Acknowledged {
        /// Failure that the channel reported.
        reason: String,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl OutboxStatus {
    /// Status of a message before its first attempt.
    pub const fn waiting() -> Self {
        Self::Waiting { attempts: 0, may_have_been_sent: false, reason: None }
    }

    /// Status of a message that was sent once.
    pub const fn sent() -> Self {
        Self::Sent { possible_duplicate: false }
    }
}
