//! Requests and responses of `runs.*`: child runs, and the ledger.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AllowList, BindingId, Content, EventKey, ModelId, RunId, RunnerId, TapeName, Timestamp, Usage};

/// Task for a child run. An absent limit is inherited from the parent, whose limits the child cannot exceed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildRunCall {
    /// Prompt of the child.
    pub prompt: Content,
    /// Part of the conversation that the child sees besides its prompt. It can search the tape in any case.
    #[serde(default, skip_serializing_if = "ChildSession::is_temp")]
    pub session: ChildSession,
    /// Tools that the child may call.
    #[serde(default = "all_tools")]
    pub tools: AllowList,
    /// Model of the child; by default that of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelId>,
    /// Maximum number of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Maximum number of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Maximum duration, in milliseconds in JSON.
    #[serde(rename = "timeout_ms", default, skip_serializing_if = "Option::is_none", with = "optional_millis")]
    #[schemars(with = "Option<u64>")]
    pub timeout: Option<Duration>,
    /// Merge the entries of the child into the tape of this run when the child completes, so that later steps see its
    /// conversation. By default they stay on the child's fork.
    #[serde(default, skip_serializing_if = "is_false")]
    pub merge_back: bool,
}

/// Conversation that a child run starts with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChildSession {
    /// Its prompt alone.
    #[default]
    Temp,
    /// The conversation of its parent, up to the step that starts the child.
    Inherit,
}

impl ChildSession {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    fn is_temp(&self) -> bool {
        *self == Self::Temp
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(value: &bool) -> bool {
    !value
}

fn all_tools() -> AllowList {
    AllowList::All
}

mod optional_millis {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "the signature that serde calls")]
    pub(super) fn serialize<S: Serializer>(timeout: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        millis.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

impl ChildRunCall {
    /// Task with this prompt and the limits of the parent.
    pub fn new(prompt: impl Into<Content>) -> Self {
        Self {
            prompt: prompt.into(),
            session: ChildSession::default(),
            tools: AllowList::All,
            model: None,
            max_steps: None,
            max_tokens: None,
            timeout: None,
            merge_back: false,
        }
    }
}

/// A child run that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildRunOutcome {
    /// Id of the child run.
    pub run_id: RunId,
    /// Tape of the child, a fork that is closed now, or at the end of the open step if it is merged.
    pub tape: TapeName,
    /// Text of the child's messages.
    pub text: String,
    /// Tokens that the child used, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Reason of the failure, if the child failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The entries of the child are merged into the tape of its parent: now, or after the results of the open step.
    #[serde(default, skip_serializing_if = "is_false")]
    pub merged: bool,
}

/// Request for a run of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunGetCall {
    /// The run.
    pub run_id: RunId,
}

/// Request for the events of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunEventsCall {
    /// The run.
    pub run_id: RunId,
    /// `next` of the previous page; absent: the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of tape entries that the page covers, at least 1.
    pub limit: usize,
}

/// Request to cancel a child run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunCancelCall {
    /// The child run.
    pub run_id: RunId,
}

/// Request for a page of the runs of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunListCall {
    /// `next` of the previous page; absent: the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of runs, at least 1.
    pub limit: usize,
}

/// A run, as recorded in the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSummary {
    /// Id of the run.
    pub run_id: RunId,
    /// Run that started this one, for a child run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// Event that the run serves.
    pub event: EventKey,
    /// Its runner.
    pub runner: RunnerId,
    /// Its binding.
    pub binding: BindingId,
    /// `created`, `running`, `completed`, `failed`, `cancelled`, `timeout` or `interrupted`.
    pub status: String,
    /// Start time.
    pub started_at: Timestamp,
    /// End time, once the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Tokens that the run used, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}
