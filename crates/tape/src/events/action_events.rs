//! Data of the events of platform actions.

use capstan_protocol::{ActionId, ChannelName, JsonObject, RunId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A platform action that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRefusal {
    /// Name of the action.
    pub action: String,
    /// Source of the refusal.
    pub by: ActionDenier,
    /// Reason, as text.
    pub reason: String,
}

/// Source of the refusal of a platform action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionDenier {
    /// Permissions of the runner.
    Runner,
    /// Policy of the binding.
    Binding,
    /// Actions of the channel.
    Channel,
    /// Schema of the arguments.
    Arguments,
}

/// A platform action that is about to be requested from the channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionStart {
    /// Identity of the action.
    pub action_id: ActionId,
    /// Name of the action.
    pub action: String,
    /// Channel that performs the action.
    pub channel: ChannelName,
    /// Arguments.
    #[serde(default)]
    pub arguments: JsonObject,
}

/// A platform action that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionEndRecord {
    /// Identity of the action.
    pub action_id: ActionId,
    /// Name of the action.
    pub action: String,
    /// Outcome.
    #[serde(flatten)]
    pub end: ActionEnd,
}

/// Outcome of a platform action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ActionEnd {
    /// The channel performed the action.
    Done {
        /// Answer of the channel.
        #[serde(default)]
        output: Value,
    },
    /// The channel did not perform the action.
    Failed {
        /// Reason, as text.
        #[serde(default)]
        reason: String,
    },
    /// The channel may or may not have performed the action.
    Unknown {
        /// Reason, as text.
        #[serde(default)]
        reason: String,
    },
}

/// Platform actions that a child run had requested, recorded on the tape of its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildActions {
    /// The child run.
    pub run_id: RunId,
    /// Names of the actions.
    #[serde(default)]
    pub actions: Vec<String>,
}
