//! One session through everything at once: a follow-up and steering during tool calls, a handoff within a step, a context
//! overflow, a kill, and recovery by another process.

use std::fs::File;

use crate::support::{CliFixture, StdioServer, hold_pipe_reader, make_pipe, wait_for_barrier};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

fn stdio_request(event_id: &str, text: &str) -> Value {
    json!({"id": event_id, "session": "brutal", "text": text, "event_id": event_id})
}

/// A tool call that blocks until the pipe is written.
fn pipe_read_call(id: &str) -> ScriptedReply {
    ScriptedReply::tool_calls([(id, "bash", json!({"cmd": "cat pipe"}))])
}

/// Waits until the shell reads from the pipe, and blocks it until the returned file is dropped.
fn hold_tool_call(fixture: &CliFixture) -> File {
    hold_pipe_reader(&fixture.workspace().join("pipe"))
}

/// Waits until this many events are in flight.
fn wait_for_in_flight(fixture: &CliFixture, count: i64) {
    while fixture.outcomes().1 < count {
        std::thread::yield_now();
    }
}

/// Messages of a request as lines, without the system prompt.
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
fn p13_x02_session_survives_steering_handoff_overflow_and_kill() {
    let barrier = ReplyBarrier::new();
    let too_long = r#"{"error": {"message": "This model's maximum context length is 8192 tokens"}}"#;
    let server = ScriptedModel::start_blocking(vec![
        pipe_read_call("call_1"),
        ScriptedReply::text("one done"),
        ScriptedReply::text("two done"),
        pipe_read_call("call_2"),
        ScriptedReply::tool_calls([("call_3", "tape_handoff", json!({"name": "phase2", "summary": "half done"}))]),
        ScriptedReply::status(400, too_long),
        ScriptedReply::text("never received completely").with_barrier(&barrier),
        ScriptedReply::text("three and four done"),
        ScriptedReply::text("five done"),
    ]);
    let fixture = CliFixture::with_model(&server);
    make_pipe(&fixture.workspace().join("pipe"));

    // A follow-up during a tool call.
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&stdio_request("e1", "one"));
    let pipe_writer = hold_tool_call(&fixture);
    stdio.send_line(&stdio_request("e2", "two"));
    wait_for_in_flight(&fixture, 2);
    drop(pipe_writer);
    assert_eq!(stdio.recv_line()["text"], "one done");
    assert_eq!(stdio.recv_line()["text"], "two done");
    assert_eq!(stdio.close().data(), "");

    // Steering during another call, a handoff within the next step, a context overflow, and the kill.
    let fixture = fixture.set("CAPSTAN_CHANNELS__STDIO__ADMISSION", "steer");
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&stdio_request("e3", "three"));
    let pipe_writer = hold_tool_call(&fixture);
    stdio.send_line(&stdio_request("e4", "four"));
    wait_for_in_flight(&fixture, 2);
    drop(pipe_writer);
    wait_for_barrier(&barrier);
    stdio.signal("KILL");
    assert_eq!(stdio.wait_for_exit().code, None, "ended by the signal");
    barrier.release();

    // Another process recovers the events; sending them again returns their outcomes.
    let mut stdio = StdioServer::start(&fixture);
    let three = stdio.send_and_recv(&stdio_request("e3", "three"));
    assert_eq!((&three["outcome"], &three["text"]), (&json!("replied"), &json!("three and four done")), "{three}");
    let four = stdio.send_and_recv(&stdio_request("e4", "four"));
    assert_eq!((&four["outcome"], &four["run_id"]), (&json!("folded"), &three["run_id"]), "{four}");
    assert_eq!(stdio.send_and_recv(&stdio_request("e5", "five"))["text"], "five done");
    assert_eq!(stdio.close().data(), "");

    assert_eq!(server.violations(), Vec::<String>::new());
    let requests = server.requests();
    let start = ["assistant: [Anchor created: session/start"].map(str::to_owned);
    let output = |more: &[&str]| [&start[..], &more.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>()].concat();
    let turns =
        ["user: one", "calls bash", "tool: (no output)", "assistant: one done", "user: two", "assistant: two done"];
    assert_eq!(conversation_lines(&requests[2]), output(&turns[..5]), "the follow-up");
    let steered = [&turns[..], &["user: three", "calls bash", "tool: (no output)", "user: four"]].concat();
    assert_eq!(conversation_lines(&requests[4]), output(&steered), "the steering");
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

    let runs = fixture.capstan(&["runs", "list", "--session", "brutal", "--json"]).json();
    let runs: Vec<&str> = runs.as_array().unwrap().iter().rev().map(|run| run["run_id"].as_str().unwrap()).collect();
    assert_eq!(runs.len(), 5, "one, two, the killed one, the recovered one, five");
    let mut recorded = Vec::new();
    for run in runs {
        recorded.extend(fixture.capstan(&["tape", "context", run]).json().as_array().unwrap().clone());
    }
    assert_eq!(recorded.len(), requests.len(), "every call is recorded");
    for (number, (call, request)) in recorded.iter().zip(&requests).enumerate() {
        for part in ["model", "messages", "tools"] {
            assert_eq!(call[part], request[part], "{part} of request {number}");
        }
    }
    assert_eq!(fixture.outcomes(), (5, 0), "every event has its outcome");
    fixture.assert_undamaged();
    fixture.capstan(&["doctor"]).succeeded();
}
