//! What a failure leaves behind: nothing where nothing was done, and all that was said where something was.

mod cli_support;

use capstan_testing::{ScriptedModel, ScriptedReply};
use cli_support::{CliFixture, entries_named, entries_of_kind};
use serde_json::{Value, json};

fn message_contents(entries: &[Value]) -> Vec<&Value> {
    entries_of_kind(entries, "message").iter().map(|entry| &entry["payload"]["content"]).collect()
}

/// A stream that begins with some reasoning and breaks off with this error.
fn interrupted_stream(before: &str, error: &Value) -> ScriptedReply {
    let begun = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hm", "content": before}}]});
    ScriptedReply::raw(format!("data: {begun}\n\ndata: {}\n\n", json!({ "error": error })))
}

#[test]
fn a02_an_overflow_told_inside_the_stream_is_handed_off_once_unless_something_was_said() {
    let overflow = json!({"code": "context_length_exceeded", "message": "maximum context length"});
    let server = ScriptedModel::start_blocking(vec![interrupted_stream("", &overflow), ScriptedReply::text("shorter")]);
    let place = CliFixture::with_model(&server);
    assert_eq!(place.capstan(&["run", "go"]).data(), "shorter\n");
    let entries = place.entries();
    let anchor = entries_named(&entries, "auto_handoff/context_overflow")[0];
    assert_eq!(anchor["payload"]["state"]["reason"], "context_length_exceeded");
    let steps: Vec<&Value> =
        entries_named(&entries, "loop.step").iter().map(|step| &step["payload"]["data"]["status"]).collect();
    assert_eq!(steps, ["auto_handoff", "ok"]);
    assert_eq!(server.violations(), Vec::<String>::new());

    let server =
        ScriptedModel::start_blocking(vec![interrupted_stream("", &overflow), interrupted_stream("", &overflow)]);
    CliFixture::with_model(&server).capstan(&["run", "go"]).failed("model-context-overflow", 1);
    let server = ScriptedModel::start_blocking(vec![interrupted_stream("half an ", &overflow)]);
    CliFixture::with_model(&server).capstan(&["run", "go"]).failed("model-context-overflow", 1);
    assert_eq!(server.requests().len(), 1, "what was said is not said again");
}

#[test]
fn a02_what_does_not_fit_a_second_time_is_not_put_down_to_the_message_alone() {
    let look = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo much"}))]);
    let server =
        ScriptedModel::start_blocking(vec![ScriptedReply::context_overflow(), look, ScriptedReply::context_overflow()]);
    let said = CliFixture::with_model(&server).capstan(&["run", "go"]).failed("model-context-overflow", 1);
    assert!(!said.stderr.contains("alone") && said.stderr.contains("tools"), "{said:?}");
}

#[test]
fn a_refused_workspace_or_setting_makes_no_home() {
    let place = CliFixture::new();
    let missing = place.path("missing");
    for command in [["run", "hello"], ["tape", "list"], ["hooks", "--json"]] {
        place.capstan(&[&command[..], &["--workspace", &missing]].concat());
    }
    assert!(!place.home().exists());
    let place = place.set("CAPSTAN_MAX_STEPS", "many");
    place.capstan(&["run", "hello"]).refused("config-invalid", 3);
    assert!(!place.home().exists());
}

#[test]
fn a_refused_message_leaves_no_entry() {
    let place = CliFixture::new();
    place.capstan(&["run", "hello"]).data();
    let before = place.entries();
    place.capstan(&["run", ""]).refused("input-invalid", 2);
    let said = place.capstan_with_input(&["run", "-"], b"one\0two").refused("input-invalid", 2);
    assert!(said.stderr.contains("NUL"), "the same as on stdio: {said:?}");
    place.capstan(&["run", "hello", "--channel", "telegraph"]).refused("channel-unknown", 2);
    let place = place.set("CAPSTAN_MAX_MESSAGE_BYTES", "100");
    place.capstan(&["run", &"x".repeat(101)]).refused("message-too-large", 2);
    place.capstan_with_input(&["run", "-"], &[b'x'; 10_000]).refused("message-too-large", 2);
    assert_eq!(place.entries(), before);
    assert_eq!(place.outcomes(), (1, 0));
    let tapes = place.capstan(&["tape", "list", "--json"]).json();
    assert_eq!(tapes.as_array().map(Vec::len), Some(1));
}

#[test]
fn a_large_standard_input_is_too_large_wherever_it_is_cut() {
    let place = CliFixture::new().set("CAPSTAN_MAX_MESSAGE_BYTES", "100");
    for shift in 0..4 {
        let input = "x".repeat(shift) + &"🐋".repeat(1000);
        place.capstan_with_input(&["run", "-"], input.as_bytes()).refused("message-too-large", 2);
    }
}

#[test]
fn a_database_that_is_refused_is_left_as_it_was() {
    let place = CliFixture::new().config("");
    let garbage = vec![b'x'; 5000];
    std::fs::write(place.database(), &garbage).unwrap();
    place.capstan(&["run", "hello"]).refused("store-corrupt", 4);
    place.capstan(&["tape", "list"]).refused("store-corrupt", 4);
    assert_eq!(std::fs::read(place.database()).unwrap(), garbage);

    let place = CliFixture::new().config("");
    rusqlite::Connection::open(place.database()).unwrap().execute_batch("CREATE TABLE other (x);").unwrap();
    let before = std::fs::read(place.database()).unwrap();
    place.capstan(&["run", "hello"]).refused("store-corrupt", 4);
    assert_eq!(std::fs::read(place.database()).unwrap(), before);
}

#[test]
fn x01_after_a_failed_model_call_the_message_stands_and_the_next_run_works() {
    let failures = [
        (ScriptedReply::status(401, "{\"error\": {\"message\": \"no\"}}"), "model-unauthorized"),
        (ScriptedReply::status(503, "{\"error\": {\"message\": \"oops\"}}"), "model-unreachable"),
        (ScriptedReply::disconnect_after(""), "model-unreachable"),
        (ScriptedReply::invalid_json(), "model-broken"),
    ];
    for (reply, code) in failures {
        let server = ScriptedModel::start_blocking(vec![reply, ScriptedReply::text("better")]);
        let place = CliFixture::with_model(&server).set("CAPSTAN_MODEL_RETRIES", "0");
        place.capstan(&["run", "hello"]).refused(code, 1);
        let entries = place.entries();
        assert_eq!(message_contents(&entries), ["hello"]);
        assert!(!entries_of_kind(&entries, "error").is_empty(), "the failure stands on the tape");
        assert_eq!(place.outcomes(), (1, 0), "the event has its outcome");

        assert_eq!(place.capstan(&["run", "and now?"]).data(), "better\n");
        assert_eq!(message_contents(&place.entries()), ["hello", "and now?", "better"]);
        assert_eq!(server.violations(), Vec::<String>::new());
        assert_eq!(place.outcomes(), (2, 0));
        place.assert_undamaged();
    }
}

#[test]
fn x01_nobody_reachable_is_an_outcome_too() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let place = CliFixture::new().set("CAPSTAN_MODEL", "openai:x").set("CAPSTAN_API_KEY", "sk-x");
    let place = place.set("CAPSTAN_API_BASE", &format!("http://{closed}/v1"));
    place.capstan(&["run", "hello"]).refused("model-unreachable", 1);
    let place = place.set("CAPSTAN_MODEL", "demo:");
    place.capstan(&["run", "again"]).data();
    assert_eq!(message_contents(&place.entries())[..2], ["hello", "again"]);
    assert_eq!(entries_named(&place.entries(), "event.accepted").len(), 2);
    assert_eq!(place.outcomes(), (2, 0));
}

#[test]
fn an_answer_that_is_cut_off_is_kept_as_far_as_it_came() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::disconnect_after("half an answer"),
        ScriptedReply::text("whole"),
    ]);
    let place = CliFixture::with_model(&server);
    let said = place.capstan(&["run", "hello"]).failed("model-broken", 1);
    assert_eq!(said.stdout.trim_end(), "half an answer", "it was shown while it came");
    let entries = place.entries();
    assert_eq!(message_contents(&entries), ["hello", "half an answer"]);
    assert_eq!(place.outcomes(), (1, 0));
    assert_eq!(place.capstan(&["run", "again"]).data(), "whole\n");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn a_failure_is_told_to_a_program_as_json_too() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::status(401, "{\"error\": {\"message\": \"no\"}}")]);
    let place = CliFixture::with_model(&server);
    let said = place.capstan(&["run", "hello", "--json"]).failed("model-unauthorized", 1);
    let told: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(told["outcome"], "failed");
    assert_eq!(told["error"]["code"], "model-unauthorized");
    assert!(told["run_id"].is_string(), "{told}");
}
