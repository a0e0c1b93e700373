//! One session through everything at once: a follow-up and steering in the middle of tool calls, a handoff inside a step,
//! a context that is too long, a kill, and another process that goes on.

mod cli_support;

use std::fs::File;

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use cli_support::{CliFixture, StdioServer, hold_pipe_reader, make_pipe, wait_for_gate};
use serde_json::{Value, json};

fn stdio_request(event_id: &str, text: &str) -> Value {
    json!({"id": event_id, "session": "brutal", "text": text, "event_id": event_id})
}

/// The model has the shell wait for the pipe.
fn pipe_read_call(id: &str) -> ScriptedReply {
    ScriptedReply::tool_calls([(id, "bash", json!({"cmd": "cat pipe"}))])
}

/// Waits until the shell reads from the pipe; it goes on when what is given is dropped.
fn hold_tool_call(place: &CliFixture) -> File {
    hold_pipe_reader(&place.workspace().join("pipe"))
}

/// Waits until so many events are in flight.
fn wait_for_in_flight(place: &CliFixture, count: i64) {
    while place.outcomes().1 < count {
        std::thread::yield_now();
    }
}

/// A request as a conversation, without the system prompt.
fn conversation_lines(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages");
    let line = |message: &Value| {
        let content = message["content"].as_str().unwrap_or_default();
        match (message["role"].as_str().expect("a role"), message["tool_calls"][0]["function"]["name"].as_str()) {
            (_, Some(tool)) => format!("calls {tool}"),
            (role, None) => format!("{role}: {}", content.split(']').next().expect("a first part")),
        }
    };
    messages[1..].iter().map(line).collect()
}

#[test]
fn p13_x02_a_session_survives_everything_and_every_request_is_valid_and_on_record() {
    let gate = ReplyBarrier::new();
    let too_long = r#"{"error": {"message": "This model's maximum context length is 8192 tokens"}}"#;
    let server = ScriptedModel::start_blocking(vec![
        pipe_read_call("call_1"),
        ScriptedReply::text("one done"),
        ScriptedReply::text("two done"),
        pipe_read_call("call_2"),
        ScriptedReply::tool_calls([("call_3", "tape_handoff", json!({"name": "phase2", "summary": "half done"}))]),
        ScriptedReply::status(400, too_long),
        ScriptedReply::text("never heard to its end").with_barrier(&gate),
        ScriptedReply::text("three and four done"),
        ScriptedReply::text("five done"),
    ]);
    let place = CliFixture::with_model(&server);
    make_pipe(&place.workspace().join("pipe"));

    // A follow-up in the middle of a tool call.
    let mut wire = StdioServer::start(&place);
    wire.send_line(&stdio_request("e1", "one"));
    let held = hold_tool_call(&place);
    wire.send_line(&stdio_request("e2", "two"));
    wait_for_in_flight(&place, 2);
    drop(held);
    assert_eq!(wire.recv_line()["text"], "one done");
    assert_eq!(wire.recv_line()["text"], "two done");
    assert_eq!(wire.close().data(), "");

    // Steering in the middle of another, a handoff inside the next step, too long a context, and the kill.
    let place = place.set("CAPSTAN_CHANNELS__STDIO__ADMISSION", "steer");
    let mut wire = StdioServer::start(&place);
    wire.send_line(&stdio_request("e3", "three"));
    let held = hold_tool_call(&place);
    wire.send_line(&stdio_request("e4", "four"));
    wait_for_in_flight(&place, 2);
    drop(held);
    wait_for_gate(&gate);
    wire.signal("KILL");
    assert_eq!(wire.wait_for_exit().code, None, "ended by the signal");
    gate.release();

    // Another process goes on by itself; whoever sends the events again is told what became of them.
    let mut wire = StdioServer::start(&place);
    let three = wire.send_and_recv(&stdio_request("e3", "three"));
    assert_eq!((&three["outcome"], &three["text"]), (&json!("replied"), &json!("three and four done")), "{three}");
    let four = wire.send_and_recv(&stdio_request("e4", "four"));
    assert_eq!((&four["outcome"], &four["run_id"]), (&json!("folded"), &three["run_id"]), "{four}");
    assert_eq!(wire.send_and_recv(&stdio_request("e5", "five"))["text"], "five done");
    assert_eq!(wire.close().data(), "");

    assert_eq!(server.violations(), Vec::<String>::new());
    let requests = server.requests();
    let start = ["assistant: [Anchor created: session/start"].map(str::to_owned);
    let said = |more: &[&str]| [&start[..], &more.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>()].concat();
    let turns =
        ["user: one", "calls bash", "tool: (no output)", "assistant: one done", "user: two", "assistant: two done"];
    assert_eq!(conversation_lines(&requests[2]), said(&turns[..5]), "the follow-up");
    let steered = [&turns[..], &["user: three", "calls bash", "tool: (no output)", "user: four"]].concat();
    assert_eq!(conversation_lines(&requests[4]), said(&steered), "the steering");
    let anchor = |name: &str| format!("assistant: [Anchor created: {name}");
    assert_eq!(
        conversation_lines(&requests[5])[..3],
        [anchor("phase2"), "user: three".to_owned(), "user: four".to_owned()]
    );
    let overflow = anchor("auto_handoff/context_overflow");
    assert_eq!(
        conversation_lines(&requests[6])[..3],
        [overflow.clone(), "user: three".to_owned(), "user: four".to_owned()]
    );
    let resumed = conversation_lines(&requests[7]);
    assert_eq!(resumed[..3], [overflow, "user: three".to_owned(), "user: four".to_owned()]);
    for text in ["user: three", "user: four"] {
        assert_eq!(resumed.iter().filter(|line| *line == text).count(), 1, "not repeated: {resumed:?}");
    }

    let runs = place.capstan(&["runs", "list", "--session", "brutal", "--json"]).json();
    let runs: Vec<&str> = runs.as_array().unwrap().iter().rev().map(|run| run["run_id"].as_str().unwrap()).collect();
    assert_eq!(runs.len(), 5, "one, two, the one that was killed, the one that went on, five");
    let mut recorded = Vec::new();
    for run in runs {
        recorded.extend(place.capstan(&["tape", "context", run]).json().as_array().unwrap().clone());
    }
    assert_eq!(recorded.len(), requests.len(), "every call is recorded");
    for (number, (call, request)) in recorded.iter().zip(&requests).enumerate() {
        for part in ["model", "messages", "tools"] {
            assert_eq!(call[part], request[part], "{part} of request {number}");
        }
    }
    assert_eq!(place.outcomes(), (5, 0), "every event has its outcome");
    place.assert_undamaged();
    place.capstan(&["doctor"]).succeeded();
}
