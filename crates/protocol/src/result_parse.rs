//! Parsing of runner results from JSON.
//!
//! Unknown fields are ignored, except in results with an effect (state, artifacts, actions): their sender may have
//! meant something that would not happen.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::truncation::truncate_bytes;
use crate::{Content, FailureCode, JsonObject, ResultBody, RunResult, StateScope, ToolCall, ToolOutput};

/// Maximum length of runner output that an error repeats, in bytes.
const MAX_PARSE_DETAIL_LEN: usize = 200;

/// Error in a runner result. Text of the runner is truncated in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResultParseError {
    /// The type is unknown.
    #[error("unknown result type")]
    Unknown {
        /// Type of the result.
        kind: String,
    },
    /// The fields do not match the type.
    #[error("{detail}")]
    Malformed {
        /// Type of the result; empty if it has none.
        kind: String,
        /// Description of the problem.
        detail: String,
    },
}

impl ResultParseError {
    /// Type that the result claims.
    pub fn kind(&self) -> &str {
        match self {
            Self::Unknown { kind } | Self::Malformed { kind, .. } => kind,
        }
    }

    /// Returns true if the result ends its run nevertheless: a malformed `run.completed` or `run.failed` still means
    /// that the runner is done.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Malformed { kind, .. } if matches!(kind.as_str(), "run.completed" | "run.failed"))
    }

    fn malformed(kind: &str, detail: impl Into<String>) -> Self {
        Self::Malformed { kind: kind.to_owned(), detail: truncate_detail(detail.into()) }
    }
}

impl ResultBody {
    /// All result types.
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

    /// Type of the result. For an unparsed result, the type that it claims, or an empty string.
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
            Self::Unparsed(value) => value.get("type").and_then(Value::as_str).unwrap_or_default(),
        }
    }
}

impl RunResult {
    /// Parses a result. Unknown fields are an error in a result that has an effect, and are ignored in others.
    pub fn from_json(value: Value) -> Result<Self, ResultParseError> {
        let Value::Object(mut fields) = value else {
            return Err(ResultParseError::malformed("", "a result must be a JSON object"));
        };
        let Some(Value::String(kind)) = fields.remove("type") else {
            return Err(ResultParseError::malformed("", "the field type is missing or not a string"));
        };
        if !ResultBody::RESULT_TYPES.contains(&kind.as_str()) {
            return Err(ResultParseError::Unknown { kind: truncate_detail(kind) });
        }
        let malformed = |detail: String| ResultParseError::malformed(&kind, detail);
        let data = match fields.remove("data") {
            None | Some(Value::Null) => JsonObject::new(),
            Some(Value::Object(data)) => data,
            Some(_) => return Err(malformed("the field data is not an object".to_owned())),
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

/// Returns true if the host acts on the result, beyond recording and streaming it.
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

fn truncate_detail(mut detail: String) -> String {
    truncate_bytes(&mut detail, MAX_PARSE_DETAIL_LEN, "...");
    detail
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
    fn k02_every_result_type_round_trips() {
        let usage = Usage { total_tokens: Some(3), ..Usage::default() };
        let kinds: Vec<String> = sample_bodies().iter().map(|body| body.kind().to_owned()).collect();
        assert_eq!(kinds, ResultBody::RESULT_TYPES);
        for body in sample_bodies() {
            let result = RunResult { usage: Some(usage.clone()), sequence: Some(7), ..RunResult::from(body) };
            let json = serde_json::to_value(&result).unwrap();
            assert_eq!(json["type"], result.body.kind());
            assert_eq!(RunResult::from_json(json), Ok(result));
        }
    }

    #[test]
    fn k02_unknown_fields_are_rejected_in_results_with_an_effect() {
        for body in sample_bodies() {
            let has_effect = super::has_effect(&body);
            let json = serde_json::to_value(RunResult::from(body)).unwrap();
            for path in ["", "/data"] {
                let mut extended = json.clone();
                extended.pointer_mut(path).unwrap()["odd"] = json!(1);
                let parsed = RunResult::from_json(extended);
                assert_eq!(parsed.is_err(), has_effect, "{path} {parsed:?}");
            }
        }
    }

    #[test]
    fn k02_empty_data_may_be_omitted() {
        for value in [json!({"type": "run.completed"}), json!({"type": "run.completed", "data": null})] {
            assert_eq!(RunResult::from_json(value), Ok(ResultBody::RunCompleted { silent: false }.into()));
        }
    }

    #[test]
    fn k02_errors_about_malformed_results_are_short() {
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
            let error = RunResult::from_json(value.clone()).unwrap_err();
            assert!(matches!(error, ResultParseError::Malformed { .. }) && !error.is_terminal(), "{value} {error:?}");
            assert!(error.to_string().len() < 300, "{error}");
        }
        let unknown = RunResult::from_json(json!({"type": long})).unwrap_err();
        assert!(matches!(&unknown, ResultParseError::Unknown { kind } if kind.len() < 300));
        for value in [json!({"type": "run.failed"}), json!({"type": "run.completed", "data": {"silent": "very"}})] {
            assert!(RunResult::from_json(value).unwrap_err().is_terminal());
        }
    }
}
