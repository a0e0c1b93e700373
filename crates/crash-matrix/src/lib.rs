//! A host to be killed: a distribution of Capstan whose channels reach a platform outside the process, and whose tools
//! leave a trace outside of it too.
//!
//! The test plays the platform, which survives every kill: it knows what was handed in and acknowledged, and what was
//! sent. One connection for each channel carries events in, a line of JSON each, and acknowledgements out; every message
//! that is sent has a connection of its own and is answered with a line.

pub mod channel;
pub mod crash_plugin;
pub mod state_runner;
pub mod tools;
pub mod trial_dir;

use capstan::protocol::{ChannelName, EventId, OutboundMessage, Outcome};
use serde::{Deserialize, Serialize};

/// What the host says to the platform.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "snake_case")]
pub enum HostReport {
    /// A channel listens on this connection.
    Listens {
        /// The channel.
        channel: ChannelName,
    },
    /// An event is durable.
    Accepted {
        /// The event.
        event_id: EventId,
    },
    /// An event was refused.
    Refused {
        /// The event.
        event_id: EventId,
        /// Why.
        reason: String,
    },
    /// A message goes out.
    Sends {
        /// Which process sends it, from 1 on.
        process: u32,
        /// The message.
        message: OutboundMessage,
    },
    /// A caller that waits is answered.
    Answers {
        /// Which process answers, from 1 on.
        process: u32,
        /// What it was asked.
        event_id: EventId,
        /// What became of it.
        outcome: Outcome,
        /// The texts of the messages to the caller.
        texts: Vec<String>,
        /// The event had been accepted before.
        duplicate: bool,
    },
}
