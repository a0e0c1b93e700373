use capstan_protocol::{
    ActionRequest, Content, ContentPart, JsonObject, ResultBody, RunResult, StateScope, ToolCall, ToolOutput,
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

fn delta(text: &str) -> RunResult {
    ResultBody::MessageDelta { delta: text.to_owned() }.into()
}

fn message(text: &str) -> RunResult {
    ResultBody::MessageCompleted { content: text.into(), provider_meta: JsonObject::new() }.into()
}

fn unread(value: Value) -> RunResult {
    ResultBody::Unread(value).into()
}

fn numbered_delta(sequence: u64) -> RunResult {
    RunResult { sequence: Some(sequence), ..delta("x") }
}

/// What becomes of results, in a word each.
fn validate_all(sieve: &mut ResultValidator, results: impl IntoIterator<Item = RunResult>) -> Vec<String> {
    let mut partial = 0;
    let mut word = |result: RunResult| match sieve.validate(result, &SMALL_LIMITS, partial) {
        ResultVerdict::Accept(RunResult { body, .. }) => {
            match &body {
                ResultBody::MessageDelta { delta } => partial += delta.len(),
                ResultBody::MessageCompleted { .. } => partial = 0,
                _ => {}
            }
            body.kind().to_owned()
        }
        ResultVerdict::Drop(None) => "-".to_owned(),
        ResultVerdict::Drop(Some(left)) => format!("-{}", left.kind),
        ResultVerdict::EndRun(failure) => failure.code.unwrap().to_string(),
    };
    results.into_iter().map(&mut word).collect()
}

#[test]
fn k02_what_a_wire_brings_is_read_and_what_cannot_be_read_is_counted() {
    let mut sieve = ResultValidator::default();
    let results = [
        json!({"type": "message.delta", "data": {"delta": "a"}}),
        json!({"type": "message.telepathy"}),
        json!({"type": "message.completed", "data": 5}),
        json!({"type": "state.updated", "data": {"state": {}, "force": true}}),
        json!({"type": "state.updated", "data": {"state": {}}}),
        json!("run.completed"),
    ];
    let words = validate_all(&mut sieve, results.map(unread));
    assert_eq!(
        words,
        ["message.delta", "-message.telepathy", "-message.completed", "-state.updated", "state.updated", "-"]
    );
    assert_eq!(sieve.anomalies, ResultAnomalies { unknown: 1, malformed: 3, ..ResultAnomalies::default() });
}

#[test]
fn k02_a_number_that_was_there_is_left_out_and_one_that_is_missing_is_noted() {
    let mut sieve = ResultValidator::default();
    let unreadable = unread(json!({"type": "message.delta", "sequence": 3}));
    let results = [
        numbered_delta(0),
        numbered_delta(1),
        numbered_delta(1),
        delta("x"),
        numbered_delta(2),
        unreadable,
        numbered_delta(4),
        numbered_delta(9),
    ];
    let words = validate_all(
        &mut sieve,
        results.into_iter().chain([numbered_delta(8), numbered_delta(u64::MAX), numbered_delta(0)]),
    );
    let heeded = "message.delta";
    assert_eq!(words[..6], [heeded, heeded, "-", heeded, heeded, "-message.delta"]);
    assert_eq!(words[6..], [heeded, heeded, "-", heeded, "-"]);
    assert_eq!(sieve.anomalies, ResultAnomalies { malformed: 1, duplicates: 3, gaps: 2, ..ResultAnomalies::default() });
}

#[test]
fn g04_the_end_is_heeded_however_it_is_said() {
    let failed = |value: Value| {
        let mut sieve = ResultValidator::default();
        validate_all(&mut sieve, [numbered_delta(5)]);
        let ResultVerdict::Accept(RunResult { body: ResultBody::RunFailed { message, code }, .. }) =
            sieve.validate(unread(value), &SMALL_LIMITS, 0)
        else {
            panic!("it did not fail")
        };
        assert!(sieve.has_ended());
        (message, code, sieve.anomalies)
    };
    let (message, code, noted) = failed(json!({"type": "run.failed", "data": {"why": 1}}));
    assert!(message.contains("run.failed") && code == Some("run-failed".into()) && noted.malformed == 1, "{message}");
    assert_eq!(failed(json!({"type": "run.completed", "data": []})).1, Some("run-failed".into()));
    let data = json!({"message": "é".repeat(1000), "code": "No Such Code"});
    let (message, code, noted) = failed(json!({"type": "run.failed", "data": data, "sequence": 5}));
    assert_eq!((message.as_str(), code), ("éééééééééé [...]", None));
    assert_eq!((noted.too_large, noted.malformed, noted.duplicates), (1, 1, 1));
}

#[test]
fn g04_what_is_too_large_is_left_out_by_itself() {
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
    let mut sieve = ResultValidator::default();
    let words = validate_all(&mut sieve, results);
    assert!(words[..6].iter().all(|word| word.starts_with('-') && word.len() > 1), "{words:?}");
    assert_eq!(words[6], "tool.call.completed", "its call is not left open");
    assert_eq!(sieve.anomalies, ResultAnomalies { too_large: 7, ..ResultAnomalies::default() });
}

#[test]
fn g04_what_is_nested_too_deep_is_left_out_by_itself() {
    let limits = ResultLimits::default();
    let sift = |deep: usize| {
        let mut sieve = ResultValidator::default();
        let nested = || (0..deep).fold(json!(1), |inner, _| json!([inner]));
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
        let sifted = results.map(|body| sieve.validate(body.into(), &limits, 0));
        let heeded = sifted.iter().filter(|sifted| matches!(sifted, ResultVerdict::Accept(_))).count();
        (heeded, sieve.anomalies.malformed)
    };
    assert_eq!(sift(99), (5, 0));
    assert_eq!(sift(100), (1, 5), "only the call that was answered is not left open");
}

#[test]
fn g04_a_message_that_is_streamed_breaks_off_where_it_is_too_long() {
    let mut sieve = ResultValidator::default();
    let ten = || delta("0123456789");
    let words = validate_all(
        &mut sieve,
        std::iter::repeat_with(ten).take(12).chain([delta("x"), message("all"), delta("next")]),
    );
    assert!(words[..10].iter().all(|word| word == "message.delta"), "{words:?}");
    assert_eq!(words[10..], ["-message.delta", "-", "-", "message.completed", "message.delta"]);
}

#[test]
fn x05_a_runner_that_floods_has_its_run_ended() {
    let ended = |results: Vec<RunResult>| {
        let mut sieve = ResultValidator::default();
        let words = validate_all(&mut sieve, results);
        let end = words.iter().position(|word| word == "run-flooded");
        assert!(!sieve.has_ended(), "it was not the runner who ended it");
        end
    };
    assert_eq!(ended(vec![delta("x"); 120]), Some(100));
    assert_eq!(ended(vec![message("x"); 60]), Some(50), "fewer where each is for the tape");
    assert_eq!(ended(vec![unread(json!({"type": "junk"})); 120]), Some(100), "junk counts");
    assert_eq!(
        ended(vec![unread(json!({"type": "junk", "data": "x".repeat(40_000)})); 9]),
        Some(2),
        "and so do its bytes"
    );
    assert_eq!(ended(vec![numbered_delta(1); 120]), Some(100), "and so do duplicates");
}

#[test]
fn x05_what_a_run_gives_is_committed_before_it_is_much() {
    let mut sieve = ResultValidator::default();
    let limits = ResultLimits::default();
    let commits = (0..1000).filter(|_| {
        sieve.validate(message("x"), &limits, 0);
        sieve.should_commit()
    });
    assert_eq!(commits.count(), 3);
    sieve.validate(message(&"x".repeat(2 << 20)), &limits, 0);
    assert!(sieve.should_commit() && !sieve.should_commit());
    let told = (0..1000).filter(|_| sieve.should_record_drop());
    assert_eq!(told.count(), 16);
}
