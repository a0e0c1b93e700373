//! Results: the ordered output of a run.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use serde_json::Value;

use crate::{Content, FailureCode, JsonObject, RunId, StateScope, Timestamp, ToolCall, ToolOutput, Usage};

/// One result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// Type and data of the result.
    #[serde(flatten)]
    pub body: ResultBody,
    /// Run that the result belongs to; absent: the run that yields it. The result of another run is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Tokens used since the previous result, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Position within the run; assigned by the host if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// Time at which the runner produced the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// Types of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub enum ResultBody {
    /// Next piece of a message. Streamed, never journalled.
    #[serde(rename = "message.delta")]
    MessageDelta {
        /// Text to append to the message: an increment, not the message so far.
        delta: String,
    },
    /// Next piece of the reasoning. Streamed, never journalled.
    #[serde(rename = "reasoning.delta")]
    ReasoningDelta {
        /// Text to append to the reasoning: an increment, not the reasoning so far.
        delta: String,
    },
    /// Complete message. Journalled; its deltas, if any, precede it.
    #[serde(rename = "message.completed")]
    MessageCompleted {
        /// Content of the message.
        content: Content,
        /// Opaque provider data of the message.
        #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
        provider_meta: JsonObject,
    },
    /// The runner called a tool of its own. Calls through the host are journalled by the host.
    #[serde(rename = "tool.call.started")]
    ToolCallStarted {
        /// The call.
        call: ToolCall,
    },
    /// A tool of the runner's own returned.
    #[serde(rename = "tool.call.completed")]
    ToolCallCompleted {
        /// Id of the call.
        call_id: String,
        /// Name of the tool.
        name: String,
        /// Output of the tool.
        output: ToolOutput,
    },
    /// Request to store state.
    #[serde(rename = "state.updated")]
    #[schemars(transform = only_known_fields)]
    StateUpdated {
        /// Scope of the state.
        #[serde(default = "conversation")]
        scope: StateScope,
        /// Keys and values to set; `null` removes a key.
        state: JsonObject,
    },
    /// Content that is too large for the conversation.
    #[serde(rename = "artifact.created")]
    #[schemars(transform = only_known_fields)]
    ArtifactCreated {
        /// Name for people: a file name without a path.
        name: String,
        /// Media type of the content, such as `text/plain`.
        media_type: String,
        /// Content, in base64.
        content: String,
    },
    /// Request for a platform action.
    #[serde(rename = "action.requested")]
    ActionRequested(ActionRequest),
    /// The run succeeded.
    #[serde(rename = "run.completed")]
    #[schemars(transform = data_may_be_absent)]
    RunCompleted {
        /// Send no reply.
        #[serde(default)]
        silent: bool,
    },
    /// The run failed.
    #[serde(rename = "run.failed")]
    RunFailed {
        /// Description of the failure that may be shown to users.
        message: String,
        /// Stable code of the failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<FailureCode>,
    },
    /// Unparsed result as received from a plugin: the whole JSON object, including the fields besides `data`. The host
    /// parses it with [`RunResult::from_json`]; the schema omits it.
    #[serde(untagged)]
    #[schemars(skip)]
    Unparsed(Value),
}

fn conversation() -> StateScope {
    StateScope::Conversation
}

/// Forbids unknown fields in the data, for results that have an effect.
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

/// Request for an action on the platform of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionRequest {
    /// Name of the action at the channel: `message.delete`, `member.mute`.
    pub action: String,
    /// Arguments of the action.
    #[serde(default)]
    pub arguments: JsonObject,
}

impl From<ResultBody> for RunResult {
    fn from(body: ResultBody) -> Self {
        Self { body, run_id: None, usage: None, sequence: None, timestamp: None }
    }
}
