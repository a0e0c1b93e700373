//! Request and response of `runs.child`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AllowList, Content, RunId, TapeName, Usage};

/// Task for a child run. An absent limit is inherited from the parent, whose limits the child cannot exceed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildRunCall {
    /// Prompt of the child. The child sees nothing else of the conversation, but can search its tape.
    pub prompt: Content,
    /// Tools that the child may call.
    #[serde(default = "all_tools")]
    pub tools: AllowList,
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
        Self { prompt: prompt.into(), tools: AllowList::All, max_steps: None, max_tokens: None, timeout: None }
    }
}

/// A child run that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildRunOutcome {
    /// Id of the child run.
    pub run_id: RunId,
    /// Tape of the child, a fork that is closed now.
    pub tape: TapeName,
    /// Text of the child's messages.
    pub text: String,
    /// Tokens that the child used, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Reason of the failure, if the child failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}
