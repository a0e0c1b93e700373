//! State after a failure: unchanged if the request was rejected, complete up to the failure otherwise.

use std::io::Write as _;

use crate::support::{BinaryOutput, CliFixture, StdioServer, entries_named, entries_of_kind, wait_for_barrier};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

fn message_contents(entries: &[Value]) -> Vec<&Value> {
    entries_of_kind(entries, "message").iter().map(|entry| &entry["payload"]["content"]).collect()
}

/// A stream of some reasoning that ends with this error.
fn interrupted_stream(before: &str, error: &Value) -> ScriptedReply {
    let first_chunk = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hm", "content": before}}]});
    ScriptedReply::raw(format!("data: {first_chunk}\n\ndata: {}\n\n", json!({ "error": error })))
}

#[test]
fn a02_overflow_within_a_stream_hands_off_once_unless_text_was_sent() {
    let overflow = json!({"code": "context_length_exceeded", "message": "maximum context length"});
    let server = ScriptedModel::start_blocking(vec![interrupted_stream("", &overflow), ScriptedReply::text("shorter")]);
    let fixture = CliFixture::with_model(&server);
    assert_eq!(fixture.capstan(&["run", "go"]).data(), "shorter\n");
    let entries = fixture.entries();
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
    assert_eq!(server.requests().len(), 1, "sent text is not repeated");
}

#[test]
fn a02_second_overflow_is_not_blamed_on_the_message_alone() {
    let look = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo much"}))]);
    let server =
        ScriptedModel::start_blocking(vec![ScriptedReply::context_overflow(), look, ScriptedReply::context_overflow()]);
    let output = CliFixture::with_model(&server).capstan(&["run", "go"]).failed("model-context-overflow", 1);
    assert!(!output.stderr.contains("alone") && output.stderr.contains("tools"), "{output:?}");
}

#[test]
fn a02_x02_kill_during_the_summary_of_a_handoff_leaves_no_anchor_and_loses_nothing() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("hi"),
        ScriptedReply::context_overflow(),
        ScriptedReply::text("{\"task\": \"never received completely\"}").with_barrier(&barrier),
        ScriptedReply::text("recovered"),
    ]);
    let fixture = CliFixture::with_model(&server);
    let request =
        |event_id: &str, text: &str| json!({"id": event_id, "session": "s", "text": text, "event_id": event_id});
    let mut stdio = StdioServer::start(&fixture);
    assert_eq!(stdio.send_and_recv(&request("e1", "hello"))["text"], "hi");
    stdio.send_line(&request("e2", "and now?"));
    wait_for_barrier(&barrier);
    stdio.signal("KILL");
    assert_eq!(stdio.wait_for_exit().code, None, "ended by the signal");
    barrier.release();
    assert_eq!(entries_named(&fixture.tape("s"), "auto_handoff/context_overflow").len(), 0);
    let mut stdio = StdioServer::start(&fixture);
    let answer = stdio.send_and_recv(&request("e2", "and now?"));
    assert_eq!((&answer["outcome"], &answer["text"]), (&json!("replied"), &json!("recovered")), "{answer}");
    stdio.close();
    let last = server.requests().pop().unwrap().to_string();
    assert!(last.contains("hello") && last.matches("and now?").count() == 1, "nothing is lost or repeated: {last}");
    fixture.assert_undamaged();
}

#[test]
fn rejected_workspace_or_setting_creates_no_home() {
    let fixture = CliFixture::new();
    let missing = fixture.path("missing");
    for command in [["run", "hello"], ["tape", "list"], ["hooks", "--json"]] {
        fixture.capstan(&[&command[..], &["--workspace", &missing]].concat());
    }
    assert!(!fixture.home().exists());
    let fixture = fixture.set("CAPSTAN_MAX_STEPS", "many");
    fixture.capstan(&["run", "hello"]).refused("config-invalid", 3);
    assert!(!fixture.home().exists());
}

#[test]
fn rejected_message_leaves_no_entry() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let before = fixture.entries();
    fixture.capstan(&["run", ""]).refused("input-invalid", 2);
    let output = fixture.capstan_with_input(&["run", "-"], b"one\0two").refused("input-invalid", 2);
    assert!(output.stderr.contains("NUL"), "as on stdio: {output:?}");
    fixture.capstan(&["run", "hello", "--channel", "telegraph"]).refused("channel-unknown", 2);
    let fixture = fixture.set("CAPSTAN_MAX_MESSAGE_BYTES", "100");
    fixture.capstan(&["run", &"x".repeat(101)]).refused("message-too-large", 2);
    fixture.capstan_with_input(&["run", "-"], &[b'x'; 10_000]).refused("message-too-large", 2);
    assert_eq!(fixture.entries(), before);
    assert_eq!(fixture.outcomes(), (1, 0));
    let tapes = fixture.capstan(&["tape", "list", "--json"]).json();
    assert_eq!(tapes.as_array().map(Vec::len), Some(1));
}

#[test]
fn oversized_standard_input_is_rejected_even_if_cut_within_a_character() {
    let fixture = CliFixture::new().set("CAPSTAN_MAX_MESSAGE_BYTES", "100");
    for shift in 0..4 {
        let input = "x".repeat(shift) + &"🐋".repeat(1000);
        fixture.capstan_with_input(&["run", "-"], input.as_bytes()).refused("message-too-large", 2);
    }
}

#[test]
fn rejected_database_is_not_modified() {
    let fixture = CliFixture::new().config("");
    let garbage = vec![b'x'; 5000];
    std::fs::write(fixture.database(), &garbage).unwrap();
    fixture.capstan(&["run", "hello"]).refused("store-corrupt", 4);
    fixture.capstan(&["tape", "list"]).refused("store-corrupt", 4);
    assert_eq!(std::fs::read(fixture.database()).unwrap(), garbage);

    let fixture = CliFixture::new().config("");
    rusqlite::Connection::open(fixture.database()).unwrap().execute_batch("CREATE TABLE other (x);").unwrap();
    let before = std::fs::read(fixture.database()).unwrap();
    fixture.capstan(&["run", "hello"]).refused("store-corrupt", 4);
    assert_eq!(std::fs::read(fixture.database()).unwrap(), before);
}

#[test]
fn x01_message_of_a_failed_model_call_is_on_the_tape_and_the_next_run_works() {
    let failures = [
        (ScriptedReply::status(401, "{\"error\": {\"message\": \"no\"}}"), "model-unauthorized"),
        (ScriptedReply::status(503, "{\"error\": {\"message\": \"oops\"}}"), "model-unreachable"),
        (ScriptedReply::disconnect_after(""), "model-unreachable"),
        (ScriptedReply::invalid_json(), "model-broken"),
    ];
    for (reply, code) in failures {
        let server = ScriptedModel::start_blocking(vec![reply, ScriptedReply::text("better")]);
        let fixture = CliFixture::with_model(&server).set("CAPSTAN_MODEL_RETRIES", "0");
        fixture.capstan(&["run", "hello"]).refused(code, 1);
        let entries = fixture.entries();
        assert_eq!(message_contents(&entries), ["hello"]);
        assert!(!entries_of_kind(&entries, "error").is_empty(), "the failure is on the tape");
        assert_eq!(fixture.outcomes(), (1, 0), "the event has its outcome");

        assert_eq!(fixture.capstan(&["run", "and now?"]).data(), "better\n");
        assert_eq!(message_contents(&fixture.entries()), ["hello", "and now?", "better"]);
        assert_eq!(server.violations(), Vec::<String>::new());
        assert_eq!(fixture.outcomes(), (2, 0));
        fixture.assert_undamaged();
    }
}

#[test]
fn x01_unreachable_model_is_an_outcome_too() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fixture = CliFixture::new().set("CAPSTAN_MODEL", "openai:x").set("CAPSTAN_API_KEY", "sk-x");
    let fixture = fixture.set("CAPSTAN_API_BASE", &format!("http://{closed}/v1"));
    fixture.capstan(&["run", "hello"]).refused("model-unreachable", 1);
    let fixture = fixture.set("CAPSTAN_MODEL", "demo:");
    fixture.capstan(&["run", "again"]).data();
    assert_eq!(message_contents(&fixture.entries())[..2], ["hello", "again"]);
    assert_eq!(entries_named(&fixture.entries(), "event.accepted").len(), 2);
    assert_eq!(fixture.outcomes(), (2, 0));
}

#[test]
fn interrupted_reply_is_stored_up_to_the_interruption() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::disconnect_after("half an answer"),
        ScriptedReply::text("whole"),
    ]);
    let fixture = CliFixture::with_model(&server);
    let output = fixture.capstan(&["run", "hello"]).failed("model-broken", 1);
    assert_eq!(output.stdout.trim_end(), "half an answer", "it was streamed");
    let entries = fixture.entries();
    assert_eq!(message_contents(&entries), ["hello", "half an answer"]);
    assert_eq!(fixture.outcomes(), (1, 0));
    assert_eq!(fixture.capstan(&["run", "again"]).data(), "whole\n");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn failure_is_part_of_the_json_output() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::status(401, "{\"error\": {\"message\": \"no\"}}")]);
    let fixture = CliFixture::with_model(&server);
    let output = fixture.capstan(&["run", "hello", "--json"]).failed("model-unauthorized", 1);
    let result: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(result["outcome"], "failed");
    assert_eq!(result["error"]["code"], "model-unauthorized");
    assert!(result["run_id"].is_string(), "{result}");
}

/// Damages the schema of the database, as seen by every open connection from its next statement on.
fn damage_database(fixture: &CliFixture) {
    let database = rusqlite::Connection::open(fixture.database()).unwrap();
    let version: i64 = database.pragma_query_value(None, "schema_version", |row| row.get(0)).unwrap();
    let damage = format!(
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 999999 WHERE name = 'inbox';
         PRAGMA schema_version = {};",
        version + 1
    );
    database.execute_batch(&damage).unwrap();
}

#[test]
fn x07_caller_hears_of_a_damaged_database_and_the_host_ends() {
    let barrier = ReplyBarrier::new();
    let model = ScriptedModel::start_blocking(vec![ScriptedReply::text("a late reply").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&model);
    let mut server = StdioServer::start(&fixture);
    server.send_line(&json!({"id": 1, "session": "s", "text": "hello"}));
    wait_for_barrier(&barrier);
    server.send_line(&json!({"id": 2, "session": "s", "text": "queued"}));
    while fixture.outcomes() != (0, 2) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    damage_database(&fixture);
    barrier.release();
    let mut delayed = [server.recv_line(), server.recv_line()];
    delayed.sort_by_key(|line| line["id"].as_u64());
    for (line, id) in delayed.iter().zip([1, 2]) {
        assert_eq!((&line["id"], &line["delayed"]["code"]), (&json!(id), &json!("store-corrupt")), "{line}");
    }
    server.wait_for_exit().failed("store-corrupt", 4);
}

#[test]
fn x07_run_and_chat_end_with_a_damaged_database() {
    for command in [["run", "hello"], ["chat", "--no-color"]] {
        let barrier = ReplyBarrier::new();
        let model = ScriptedModel::start_blocking(vec![ScriptedReply::text("a late reply").with_barrier(&barrier)]);
        let fixture = CliFixture::with_model(&model);
        let mut process = fixture.command(&command).stdin(std::process::Stdio::piped()).spawn().unwrap();
        // The chat gets its message here, and no end of the input.
        let mut input = process.stdin.take().unwrap();
        input.write_all(b"hello\n").unwrap();
        wait_for_barrier(&barrier);
        damage_database(&fixture);
        barrier.release();
        BinaryOutput::from(process.wait_with_output().unwrap()).failed("store-corrupt", 4);
        drop(input);
    }
}
