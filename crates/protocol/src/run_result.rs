//! What a runner yields: facts about its run, in order.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use serde_json::Value;

use crate::{Content, FailureCode, JsonObject, RunId, StateScope, Timestamp, ToolCall, ToolOutput, Usage};

/// One result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// What it is.
    #[serde(flatten)]
    pub body: ResultBody,
    /// Run that the result belongs to; set by the host, whatever the runner says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// What was used since the last result, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Its place in the run; the host numbers what comes without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// When the runner made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// The kinds of result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub enum ResultBody {
    /// More of a message. Streamed, never journalled.
    #[serde(rename = "message.delta")]
    MessageDelta {
        /// What was added.
        delta: String,
    },
    /// More of the reasoning. Streamed, never journalled.
    #[serde(rename = "reasoning.delta")]
    ReasoningDelta {
        /// What was added.
        delta: String,
    },
    /// A whole message. Journalled; its deltas, if any, came before it.
    #[serde(rename = "message.completed")]
    MessageCompleted {
        /// What it says.
        content: Content,
        /// Opaque provider data that belongs to it.
        #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
        provider_meta: JsonObject,
    },
    /// A tool of the runner's own was called. Calls through the host are journalled by the host.
    #[serde(rename = "tool.call.started")]
    ToolCallStarted {
        /// The call.
        call: ToolCall,
    },
    /// A tool of the runner's own answered.
    #[serde(rename = "tool.call.completed")]
    ToolCallCompleted {
        /// The call it answers.
        call_id: String,
        /// The tool that answered.
        name: String,
        /// What it said.
        output: ToolOutput,
    },
    /// The runner wants state kept.
    #[serde(rename = "state.updated")]
    #[schemars(transform = only_known_fields)]
    StateUpdated {
        /// For whom.
        #[serde(default = "conversation")]
        scope: StateScope,
        /// The keys to set; `null` removes one.
        state: JsonObject,
    },
    /// The runner made a content that is too large for the conversation.
    #[serde(rename = "artifact.created")]
    #[schemars(transform = only_known_fields)]
    ArtifactCreated {
        /// What it is, for people: a file name without a path.
        name: String,
        /// What kind of content it is, as `text/plain`.
        media_type: String,
        /// The content, in base64.
        content: String,
    },
    /// The runner wants something done on the platform.
    #[serde(rename = "action.requested")]
    ActionRequested(ActionRequest),
    /// The run ended well.
    #[serde(rename = "run.completed")]
    #[schemars(transform = data_may_be_absent)]
    RunCompleted {
        /// Nothing is to be sent.
        #[serde(default)]
        silent: bool,
    },
    /// The run failed.
    #[serde(rename = "run.failed")]
    RunFailed {
        /// What happened, fit to be shown.
        message: String,
        /// A stable code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<FailureCode>,
    },
    /// The whole object of a result as it came over a wire, the fields beside `data` included. The host reads it as
    /// [`RunResult::read`] does; no schema describes it.
    #[serde(untagged)]
    #[schemars(skip)]
    Unread(Value),
}

fn conversation() -> StateScope {
    StateScope::Conversation
}

/// Where something is done about a result, fields that are not known are refused.
fn only_known_fields(schema: &mut Schema) {
    if let Some(Value::Object(data)) = schema.pointer_mut("/properties/data") {
        data.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

fn data_may_be_absent(schema: &mut Schema) {
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|field| field != "data");
    }
}

/// Something to be done on the platform that an event came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionRequest {
    /// What, by the name that the channel has for it: `message.delete`, `member.mute`.
    pub action: String,
    /// With what.
    #[serde(default)]
    pub arguments: JsonObject,
}

impl From<ResultBody> for RunResult {
    fn from(body: ResultBody) -> Self {
        Self { body, run_id: None, usage: None, sequence: None, timestamp: None }
    }
}
