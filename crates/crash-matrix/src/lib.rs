//! Host under test of the crash matrix: a distribution of Capstan whose channels connect to a platform outside the
//! process, and whose tools record their executions outside of it.
//!
//! The test plays the platform, which survives every kill: it knows which events were offered and acknowledged, and
//! which messages were sent. One connection per channel carries events in, one line of JSON each, and acknowledgements
//! out; every outgoing message has its own connection and is acknowledged with a line.
//!
//! Main types: [`crash_plugin::CrashPlugin`], [`channel::PlatformChannel`], [`HostReport`] and [`trial_dir::TrialDir`].
//! The tests in `tests/matrix` kill the host and check its guarantees.

pub mod channel;
pub mod crash_plugin;
pub mod state_runner;
pub mod tools;
pub mod trial_dir;

use capstan::protocol::{ChannelName, EventId, OutboundMessage, Outcome};
use serde::{Deserialize, Serialize};

/// Report of the host to the platform.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HostReport {
    /// A channel listens on this connection.
    Listening {
        /// Name of the channel.
        channel: ChannelName,
    },
    /// An event is durable.
    Accepted {
        /// Id of the event.
        event_id: EventId,
    },
    /// An event was refused.
    Refused {
        /// Id of the event.
        event_id: EventId,
        /// Reason of the refusal.
        reason: String,
    },
    /// A message is sent.
    Message {
        /// Number of the sending process, starting at 1.
        process: u32,
        /// Message to deliver.
        message: OutboundMessage,
    },
    /// A waiting caller gets its reply.
    Reply {
        /// Number of the replying process, starting at 1.
        process: u32,
        /// Id of the caller's event.
        event_id: EventId,
        /// Outcome of the event.
        outcome: Outcome,
        /// Texts of the messages to the caller.
        texts: Vec<String>,
        /// The event had been accepted before.
        duplicate: bool,
    },
}
