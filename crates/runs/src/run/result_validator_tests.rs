use capstan_protocol::{
    ActionRequest, Content, ContentPart, JsonObject, ResultBody, RunId, RunResult, StateScope, ToolCall, ToolOutput,
};
use serde_json::{Value, json};

use super::{ResultAnomalies, ResultValidator, ResultVerdict};
use crate::options::ResultLimits;

const SMALL_LIMITS: ResultLimits = ResultLimits {
    delta_bytes: 10,
    message_bytes: 100,
    tool_bytes: 200,
    state_bytes: 100,
    artifact_bytes: 30,
    error_bytes: 20,
    total_bytes: 100_000,
    count: 100,
    entries: 50,
};

fn run_id() -> RunId {
    RunId::new("run-own")
}

fn delta(text: &str) -> RunResult {
    ResultBody::MessageDelta { delta: text.to_owned() }.into()
}

fn message(text: &str) -> RunResult {
    ResultBody::MessageCompleted { content: text.into(), provider_meta: JsonObject::new() }.into()
}

fn unread(value: Value) -> RunResult {
    ResultBody::Unparsed(value).into()
}

fn numbered_delta(sequence: u64) -> RunResult {
    RunResult { sequence: Some(sequence), ..delta("x") }
}

/// One word per result: its kind if it is accepted, `-` and the kind if it is dropped, or the code that ends the run.
fn validate_all(validator: &mut ResultValidator, results: impl IntoIterator<Item = RunResult>) -> Vec<String> {
    let mut partial = 0;
    let mut verdict_word = |result: RunResult| match validator.validate(result, &run_id(), &SMALL_LIMITS, partial) {
        ResultVerdict::Accept(RunResult { body, .. }) => {
            match &body {
                ResultBody::MessageDelta { delta } => partial += delta.len(),
                ResultBody::MessageCompleted { .. } => partial = 0,
                _ => {}
            }
            body.kind().to_owned()
        }
        ResultVerdict::Drop(None) => "-".to_owned(),
        ResultVerdict::Drop(Some(dropped)) => format!("-{}", dropped.kind),
        ResultVerdict::EndRun(failure) => failure.code.unwrap().to_string(),
    };
    results.into_iter().map(&mut verdict_word).collect()
}

#[test]
fn k02_results_of_a_wire_are_parsed_and_malformed_ones_are_counted() {
    let mut validator = ResultValidator::default();
    let results = [
        json!({"type": "message.delta", "data": {"delta": "a"}}),
        json!({"type": "message.telepathy"}),
        json!({"type": "message.completed", "data": 5}),
        json!({"type": "state.updated", "data": {"state": {}, "force": true}}),
        json!({"type": "state.updated", "data": {"state": {}}}),
        json!("run.completed"),
    ];
    let words = validate_all(&mut validator, results.map(unread));
    assert_eq!(
        words,
        ["message.delta", "-message.telepathy", "-message.completed", "-state.updated", "state.updated", "-"]
    );
    assert_eq!(validator.anomalies, ResultAnomalies { unknown: 1, malformed: 3, ..ResultAnomalies::default() });
}

#[test]
fn k02_a_repeated_sequence_number_is_dropped_and_a_gap_is_counted() {
    let mut validator = ResultValidator::default();
    let malformed = unread(json!({"type": "message.delta", "sequence": 3}));
    let results = [
        numbered_delta(0),
        numbered_delta(1),
        numbered_delta(1),
        delta("x"),
        numbered_delta(2),
        malformed,
        numbered_delta(4),
        numbered_delta(9),
    ];
    let words = validate_all(
        &mut validator,
        results.into_iter().chain([numbered_delta(8), numbered_delta(u64::MAX), numbered_delta(0)]),
    );
    let accepted = "message.delta";
    assert_eq!(words[..6], [accepted, accepted, "-", accepted, accepted, "-message.delta"]);
    assert_eq!(words[6..], [accepted, accepted, "-", accepted, "-"]);
    assert_eq!(
        validator.anomalies,
        ResultAnomalies { malformed: 1, duplicates: 3, gaps: 2, ..ResultAnomalies::default() }
    );
}

#[test]
fn g04_a_terminal_result_is_accepted_even_if_malformed_or_oversized() {
    let fail_with = |value: Value| {
        let mut validator = ResultValidator::default();
        validate_all(&mut validator, [numbered_delta(5)]);
        let ResultVerdict::Accept(RunResult { body: ResultBody::RunFailed { message, code }, .. }) =
            validator.validate(unread(value), &run_id(), &SMALL_LIMITS, 0)
        else {
            panic!("the run did not fail")
        };
        assert!(validator.has_ended());
        (message, code, validator.anomalies)
    };
    let (message, code, anomalies) = fail_with(json!({"type": "run.failed", "data": {"why": 1}}));
    assert!(
        message.contains("run.failed") && code == Some("run-failed".into()) && anomalies.malformed == 1,
        "{message}"
    );
    assert_eq!(fail_with(json!({"type": "run.completed", "data": []})).1, Some("run-failed".into()));
    let data = json!({"message": "é".repeat(1000), "code": "No Such Code"});
    let (message, code, anomalies) = fail_with(json!({"type": "run.failed", "data": data, "sequence": 5}));
    assert_eq!((message.as_str(), code), ("éééééééééé [...]", None));
    assert_eq!((anomalies.too_large, anomalies.malformed, anomalies.duplicates), (1, 1, 1));
}

#[test]
fn g04_an_oversized_result_is_dropped_alone() {
    let long = "x".repeat(300);
    let state = JsonObject::from_iter([("k".to_owned(), json!(long))]);
    let answer = ResultBody::ToolCallCompleted {
        call_id: "1".to_owned(),
        name: "look".to_owned(),
        output: ToolOutput::ok(long.clone()),
    };
    let results: [RunResult; 7] = [
        message(&long),
        ResultBody::ReasoningDelta { delta: long.clone() }.into(),
        ResultBody::ToolCallStarted { call: ToolCall::new("1", "look", long.clone()) }.into(),
        ResultBody::StateUpdated { scope: StateScope::Runner, state: state.clone() }.into(),
        ResultBody::ActionRequested(ActionRequest { action: "a".to_owned(), arguments: state }).into(),
        unread(json!({"type": "artifact.created", "data":
            {"name": "n", "media_type": "text/plain", "content": "A".repeat(5000)}})),
        answer.into(),
    ];
    let mut validator = ResultValidator::default();
    let words = validate_all(&mut validator, results);
    assert!(words[..6].iter().all(|word| word.starts_with('-') && word.len() > 1), "{words:?}");
    assert_eq!(words[6], "tool.call.completed", "the call does not stay open");
    assert_eq!(validator.anomalies, ResultAnomalies { too_large: 7, ..ResultAnomalies::default() });
}

#[test]
fn g04_a_result_nested_too_deeply_is_dropped_alone() {
    let limits = ResultLimits::default();
    let validate = |depth: usize| {
        let mut validator = ResultValidator::default();
        let nested = || (0..depth).fold(json!(1), |inner, _| json!([inner]));
        let map = || JsonObject::from_iter([("k".to_owned(), nested())]);
        let content = || Content::Parts(vec![ContentPart::Other(map())]);
        let call = ToolCall { extra: map(), ..ToolCall::new("1", "look", "{}") };
        let output = ToolOutput::ok(content());
        let results = [
            ResultBody::MessageCompleted { content: "x".into(), provider_meta: map() },
            ResultBody::MessageCompleted { content: content(), provider_meta: JsonObject::new() },
            ResultBody::ToolCallStarted { call },
            ResultBody::StateUpdated { scope: StateScope::Runner, state: map() },
            ResultBody::ToolCallCompleted { call_id: "1".to_owned(), name: "look".to_owned(), output },
        ];
        let verdicts = results.map(|body| validator.validate(body.into(), &run_id(), &limits, 0));
        let accepted = verdicts.iter().filter(|verdict| matches!(verdict, ResultVerdict::Accept(_))).count();
        (accepted, validator.anomalies.malformed)
    };
    assert_eq!(validate(99), (5, 0));
    assert_eq!(validate(100), (1, 5), "only the completed call is accepted, so that it does not stay open");
}

#[test]
fn g04_a_streamed_message_is_cut_off_at_the_size_limit() {
    let mut validator = ResultValidator::default();
    let ten = || delta("0123456789");
    let words = validate_all(
        &mut validator,
        std::iter::repeat_with(ten).take(12).chain([delta("x"), message("all"), delta("next")]),
    );
    assert!(words[..10].iter().all(|word| word == "message.delta"), "{words:?}");
    assert_eq!(words[10..], ["-message.delta", "-", "-", "message.completed", "message.delta"]);
}

#[test]
fn x05_a_run_that_floods_the_host_with_results_is_ended() {
    let flood_position = |results: Vec<RunResult>| {
        let mut validator = ResultValidator::default();
        let words = validate_all(&mut validator, results);
        let position = words.iter().position(|word| word == "run-flooded");
        assert!(!validator.has_ended(), "the host ends the run, not the runner");
        position
    };
    assert_eq!(flood_position(vec![delta("x"); 120]), Some(100));
    assert_eq!(flood_position(vec![message("x"); 60]), Some(50), "results with entries have a lower limit");
    assert_eq!(flood_position(vec![unread(json!({"type": "junk"})); 120]), Some(100), "unknown results count");
    assert_eq!(
        flood_position(vec![unread(json!({"type": "junk", "data": "x".repeat(40_000)})); 9]),
        Some(2),
        "the bytes of unknown results count"
    );
    assert_eq!(flood_position(vec![numbered_delta(1); 120]), Some(100), "duplicates count");
}

#[test]
fn x05_uncommitted_results_and_recorded_drops_are_bounded() {
    let mut validator = ResultValidator::default();
    let limits = ResultLimits::default();
    let commits = (0..1000).filter(|_| {
        validator.validate(message("x"), &run_id(), &limits, 0);
        validator.should_commit()
    });
    assert_eq!(commits.count(), 3);
    validator.validate(message(&"x".repeat(2 << 20)), &run_id(), &limits, 0);
    assert!(validator.should_commit() && !validator.should_commit());
    let recorded = (0..1000).filter(|_| validator.should_record_drop());
    assert_eq!(recorded.count(), 16);
}

#[test]
fn k02_a_result_of_another_run_is_dropped_and_counted() {
    let mut validator = ResultValidator::default();
    let of_run = |run: &str, result: RunResult| RunResult { run_id: Some(RunId::new(run)), ..result };
    let results = [
        of_run("run-own", message("own")),
        of_run("run-other", message("forged")),
        unread(json!({"type": "run.completed", "run_id": "run-other"})),
        unread(json!({"type": "message.delta", "data": {"delta": "x"}, "run_id": "run-own"})),
    ];
    let words = validate_all(&mut validator, results);
    assert_eq!(words, ["message.completed", "-message.completed", "-run.completed", "message.delta"]);
    assert_eq!(validator.anomalies, ResultAnomalies { malformed: 2, ..ResultAnomalies::default() });
    assert!(!validator.has_ended());
}
