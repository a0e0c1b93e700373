//! A result as it came over a wire: read by its type, strictly where something would be done about it.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::truncation::truncate_bytes;
use crate::{Content, FailureCode, JsonObject, ResultBody, RunResult, StateScope, ToolCall, ToolOutput};

/// How much of what a runner wrote is repeated where it is told what is wrong with it, in bytes.
const MAX_PARSE_DETAIL_LEN: usize = 200;

/// Why something is no result that anybody heeds. What it repeats of the runner's own words is short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResultParseError {
    /// Its type is not known.
    #[error("no result is of this type")]
    Unknown {
        /// The type.
        kind: String,
    },
    /// It is not what its type says.
    #[error("{detail}")]
    Malformed {
        /// The type; empty where it has none.
        kind: String,
        /// What is wrong.
        detail: String,
    },
}

impl ResultParseError {
    /// The type that it says it is of.
    pub fn kind(&self) -> &str {
        match self {
            Self::Unknown { kind } | Self::Malformed { kind, .. } => kind,
        }
    }

    /// Whether it ends its run all the same: a runner that says it is done is done, however it says so.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Malformed { kind, .. } if matches!(kind.as_str(), "run.completed" | "run.failed"))
    }

    fn malformed(kind: &str, detail: impl Into<String>) -> Self {
        Self::Malformed { kind: kind.to_owned(), detail: truncate_detail(detail.into()) }
    }
}

impl ResultBody {
    /// The types there are.
    pub const RESULT_TYPES: [&'static str; 10] = [
        "message.delta",
        "reasoning.delta",
        "message.completed",
        "tool.call.started",
        "tool.call.completed",
        "state.updated",
        "artifact.created",
        "action.requested",
        "run.completed",
        "run.failed",
    ];

    /// Its type; of what is not read yet what it says, or nothing.
    pub fn kind(&self) -> &str {
        match self {
            Self::MessageDelta { .. } => "message.delta",
            Self::ReasoningDelta { .. } => "reasoning.delta",
            Self::MessageCompleted { .. } => "message.completed",
            Self::ToolCallStarted { .. } => "tool.call.started",
            Self::ToolCallCompleted { .. } => "tool.call.completed",
            Self::StateUpdated { .. } => "state.updated",
            Self::ArtifactCreated { .. } => "artifact.created",
            Self::ActionRequested(_) => "action.requested",
            Self::RunCompleted { .. } => "run.completed",
            Self::RunFailed { .. } => "run.failed",
            Self::Unread(value) => value.get("type").and_then(Value::as_str).unwrap_or_default(),
        }
    }
}

impl RunResult {
    /// A result from the object that a wire carried. Fields that no result has are passed over, except where something
    /// would be done about the result: nobody can tell what was meant by them.
    pub fn from_json(value: Value) -> Result<Self, ResultParseError> {
        let Value::Object(mut fields) = value else {
            return Err(ResultParseError::malformed("", "a result is a JSON object"));
        };
        let Some(Value::String(kind)) = fields.remove("type") else {
            return Err(ResultParseError::malformed("", "the field type is missing or no text"));
        };
        if !ResultBody::RESULT_TYPES.contains(&kind.as_str()) {
            return Err(ResultParseError::Unknown { kind: truncate_detail(kind) });
        }
        let malformed = |detail: String| ResultParseError::malformed(&kind, detail);
        let data = match fields.remove("data") {
            None | Some(Value::Null) => JsonObject::new(),
            Some(Value::Object(data)) => data,
            Some(_) => return Err(malformed("the field data is no object".to_owned())),
        };
        let run_id = take_optional(&mut fields, "run_id").map_err(malformed)?;
        let usage = take_optional(&mut fields, "usage").map_err(malformed)?;
        let sequence = take_optional(&mut fields, "sequence").map_err(malformed)?;
        let timestamp = take_optional(&mut fields, "timestamp").map_err(malformed)?;
        let body = parse_body(&kind, data).map_err(|error| malformed(error.to_string()))?;
        if has_effect(&body)
            && let Some(field) = fields.keys().next()
        {
            return Err(malformed(format!("there is no field {field}")));
        }
        Ok(Self { body, run_id, usage, sequence, timestamp })
    }
}

/// Whether something is done about a result beside telling it.
fn has_effect(body: &ResultBody) -> bool {
    matches!(
        body,
        ResultBody::StateUpdated { .. } | ResultBody::ArtifactCreated { .. } | ResultBody::ActionRequested(_)
    )
}

fn take_optional<T: DeserializeOwned>(fields: &mut JsonObject, field: &str) -> Result<Option<T>, String> {
    let Some(value) = fields.remove(field) else { return Ok(None) };
    serde_json::from_value(value).map_err(|error| format!("the field {field} is not valid: {error}"))
}

#[derive(Deserialize)]
struct DeltaData {
    delta: String,
}

#[derive(Deserialize)]
struct MessageCompletedData {
    content: Content,
    #[serde(default)]
    provider_meta: JsonObject,
}

#[derive(Deserialize)]
struct ToolCallStartedData {
    call: ToolCall,
}

#[derive(Deserialize)]
struct ToolCallCompletedData {
    call_id: String,
    name: String,
    output: ToolOutput,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateUpdatedData {
    scope: Option<StateScope>,
    state: JsonObject,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArtifactCreatedData {
    name: String,
    media_type: String,
    content: String,
}

#[derive(Deserialize)]
struct RunCompletedData {
    silent: Option<bool>,
}

#[derive(Deserialize)]
struct RunFailedData {
    message: String,
    code: Option<FailureCode>,
}

fn parse_body(kind: &str, data: JsonObject) -> Result<ResultBody, serde_json::Error> {
    let data = Value::Object(data);
    Ok(match kind {
        "message.delta" => ResultBody::MessageDelta { delta: serde_json::from_value::<DeltaData>(data)?.delta },
        "reasoning.delta" => ResultBody::ReasoningDelta { delta: serde_json::from_value::<DeltaData>(data)?.delta },
        "message.completed" => {
            let MessageCompletedData { content, provider_meta } = serde_json::from_value(data)?;
            ResultBody::MessageCompleted { content, provider_meta }
        }
        "tool.call.started" => {
            ResultBody::ToolCallStarted { call: serde_json::from_value::<ToolCallStartedData>(data)?.call }
        }
        "tool.call.completed" => {
            let ToolCallCompletedData { call_id, name, output } = serde_json::from_value(data)?;
            ResultBody::ToolCallCompleted { call_id, name, output }
        }
        "state.updated" => {
            let StateUpdatedData { scope, state } = serde_json::from_value(data)?;
            ResultBody::StateUpdated { scope: scope.unwrap_or(StateScope::Conversation), state }
        }
        "artifact.created" => {
            let ArtifactCreatedData { name, media_type, content } = serde_json::from_value(data)?;
            ResultBody::ArtifactCreated { name, media_type, content }
        }
        "action.requested" => ResultBody::ActionRequested(serde_json::from_value(data)?),
        "run.completed" => {
            let RunCompletedData { silent } = serde_json::from_value(data)?;
            ResultBody::RunCompleted { silent: silent.unwrap_or_default() }
        }
        _ => {
            let RunFailedData { message, code } = serde_json::from_value(data)?;
            ResultBody::RunFailed { message, code }
        }
    })
}

fn truncate_detail(mut words: String) -> String {
    truncate_bytes(&mut words, MAX_PARSE_DETAIL_LEN, "...");
    words
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::ResultParseError;
    use crate::{ActionRequest, JsonObject, ResultBody, RunResult, StateScope, ToolCall, ToolOutput, Usage};

    fn sample_bodies() -> Vec<ResultBody> {
        vec![
            ResultBody::MessageDelta { delta: "a".to_owned() },
            ResultBody::ReasoningDelta { delta: "b".to_owned() },
            ResultBody::MessageCompleted { content: "c".into(), provider_meta: JsonObject::new() },
            ResultBody::ToolCallStarted { call: ToolCall::new("1", "look", "{}") },
            ResultBody::ToolCallCompleted {
                call_id: "1".to_owned(),
                name: "look".to_owned(),
                output: ToolOutput::ok("d"),
            },
            ResultBody::StateUpdated { scope: StateScope::Actor, state: JsonObject::new() },
            ResultBody::ArtifactCreated {
                name: "e".to_owned(),
                media_type: "text/plain".to_owned(),
                content: "AA==".to_owned(),
            },
            ResultBody::ActionRequested(ActionRequest { action: "f".to_owned(), arguments: JsonObject::new() }),
            ResultBody::RunCompleted { silent: true },
            ResultBody::RunFailed { message: "g".to_owned(), code: Some("h".into()) },
        ]
    }

    #[test]
    fn k02_what_is_written_is_read_back_whatever_its_type() {
        let usage = Usage { total_tokens: Some(3), ..Usage::default() };
        let kinds: Vec<String> = sample_bodies().iter().map(|body| body.kind().to_owned()).collect();
        assert_eq!(kinds, ResultBody::RESULT_TYPES);
        for body in sample_bodies() {
            let result = RunResult { usage: Some(usage.clone()), sequence: Some(7), ..RunResult::from(body) };
            let written = serde_json::to_value(&result).unwrap();
            assert_eq!(written["type"], result.body.kind());
            assert_eq!(RunResult::from_json(written), Ok(result));
        }
    }

    #[test]
    fn k02_fields_that_no_result_has_are_refused_where_something_would_be_done() {
        for body in sample_bodies() {
            let has_effect = super::has_effect(&body);
            let written = serde_json::to_value(RunResult::from(body)).unwrap();
            for place in ["", "/data"] {
                let mut odd = written.clone();
                odd.pointer_mut(place).unwrap()["odd"] = json!(1);
                let read = RunResult::from_json(odd);
                assert_eq!(read.is_err(), has_effect, "{place} {read:?}");
            }
        }
    }

    #[test]
    fn k02_data_that_says_nothing_may_be_left_out() {
        for value in [json!({"type": "run.completed"}), json!({"type": "run.completed", "data": null})] {
            assert_eq!(RunResult::from_json(value), Ok(ResultBody::RunCompleted { silent: false }.into()));
        }
    }

    #[test]
    fn k02_what_is_no_result_is_told_in_few_words() {
        let long = "x".repeat(10_000);
        let malformed = [
            Value::Null,
            json!([]),
            json!({}),
            json!({"type": 7}),
            json!({"type": "message.delta"}),
            json!({"type": "message.delta", "data": "hello"}),
            json!({"type": "message.delta", "data": {"delta": {"text": long}}}),
            json!({"type": "message.completed", "data": {"content": 5}}),
            json!({"type": "message.completed", "data": {"content": "a"}, "usage": long}),
            json!({"type": "message.completed", "data": {"content": "a"}, "sequence": -1}),
            json!({"type": "message.completed", "data": {"content": "a"}, "timestamp": "yesterday"}),
            json!({"type": "tool.call.started", "data": {"call": long}}),
            json!({"type": "tool.call.completed", "data": {"call_id": "1"}}),
            json!({"type": "state.updated", "data": {"state": [1]}}),
            json!({"type": "state.updated", "data": {"scope": "galaxy", "state": {}}}),
            json!({"type": "artifact.created", "data": {"name": "a"}}),
            json!({"type": "action.requested", "data": {}}),
        ];
        for value in malformed {
            let fault = RunResult::from_json(value.clone()).unwrap_err();
            assert!(matches!(fault, ResultParseError::Malformed { .. }) && !fault.is_terminal(), "{value} {fault:?}");
            assert!(fault.to_string().len() < 300, "{fault}");
        }
        let unknown = RunResult::from_json(json!({"type": long})).unwrap_err();
        assert!(matches!(&unknown, ResultParseError::Unknown { kind } if kind.len() < 300));
        for value in [json!({"type": "run.failed"}), json!({"type": "run.completed", "data": {"silent": "very"}})] {
            assert!(RunResult::from_json(value).unwrap_err().is_terminal());
        }
    }
}
