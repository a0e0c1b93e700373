//! `capstan serve --channel stdio` over pipes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use crate::support::{CliFixture, StdioServer, entries_of_kind, wait_for_barrier};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

fn stdio_request(id: impl Into<Value>, session: &str, text: &str) -> Value {
    json!({"id": id.into(), "session": session, "text": text})
}

#[test]
fn c06_each_line_gets_one_reply_and_end_of_input_ends_the_process() {
    let fixture = CliFixture::new();
    let mut stdio = StdioServer::start(&fixture);
    let mut answer = stdio.send_and_recv(&stdio_request(json!({"n": [1]}), "work", "hello"));
    let text = answer["text"].take();
    assert!(text.as_str().unwrap().ends_with("You said: hello"), "{text}");
    assert!(answer["run_id"].as_str().unwrap().starts_with("run-"));
    assert_eq!((&answer["id"], &answer["session"]), (&json!({"n": [1]}), &json!("work")));
    assert_eq!(answer["outcome"], "replied");
    assert_eq!(stdio.close().data(), "", "nothing else is printed");
    assert_eq!(entries_of_kind(&fixture.tape("work"), "message").len(), 2, "the message and the reply");
}

#[test]
fn g01_line_with_additional_fields_is_stored_verbatim() {
    let fixture = CliFixture::new();
    let mut stdio = StdioServer::start(&fixture);
    let line = "{\"session\": \"s\",  \"id\": \"ticket 7\", \"text\": \"hello\"}";
    stdio.write(format!("{line}\n"));
    let run = stdio.recv_line()["run_id"].as_str().unwrap().to_owned();
    let plain = stdio.send_and_recv(&json!({"session": "s", "text": "hello"}))["run_id"].as_str().unwrap().to_owned();
    // Longer than a payload that is stored inline.
    let long_line = json!({"session": "s", "id": 8, "text": "hello ".repeat(400)}).to_string();
    stdio.write(format!("{long_line}\n"));
    let long = stdio.recv_line()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(stdio.close().data(), "");
    let shown = |run: &str| fixture.capstan(&["runs", "show", run, "--json"]).json()["accepted"].clone();
    assert_eq!(shown(&run)["raw"], line);
    assert_eq!(shown(&plain)["raw"], Value::Null, "the event contains all of it");
    assert_eq!(shown(&long)["raw"], long_line.as_str());
    let inbound = fixture.capstan(&["tape", "events", "s", "--json"]).values();
    let refs: Vec<bool> = inbound.iter().filter(|fact| fact["fact"] == "inbound").map(has_raw_ref).collect();
    assert_eq!(refs, [true, false, true]);
    fixture.assert_undamaged();
}

fn has_raw_ref(inbound: &Value) -> bool {
    inbound["event"]["raw_ref"]["blob"].is_string()
}

#[test]
fn c06_last_line_without_newline_is_accepted() {
    let fixture = CliFixture::new();
    let mut stdio = StdioServer::start(&fixture);
    stdio.write(stdio_request(1, "s", "hello").to_string());
    stdio.close_stdin();
    assert_eq!(stdio.recv_line()["outcome"], "replied");
    assert_eq!(stdio.wait_for_exit().data(), "");
}

#[test]
fn t13_c06_one_process_serves_many_sessions_each_in_order() {
    const SESSION_COUNT: usize = 200;
    const TURNS_PER_SESSION: usize = 3;
    let fixture = CliFixture::new();
    let mut stdio = StdioServer::start(&fixture);
    for turn in 0..TURNS_PER_SESSION {
        for session in 0..SESSION_COUNT {
            stdio.send_line(&stdio_request(turn, &format!("s{session}"), &format!("turn {turn} of {session}")));
        }
    }
    stdio.close_stdin();
    let mut turns: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for _ in 0..SESSION_COUNT * TURNS_PER_SESSION {
        let answer = stdio.recv_line();
        let session = answer["session"].as_str().unwrap().to_owned();
        let turn = answer["id"].as_u64().unwrap();
        let output = format!("turn {turn} of {}", &session[1..]);
        assert!(answer["text"].as_str().unwrap().ends_with(&output), "{answer}");
        turns.entry(session).or_default().push(turn);
    }
    assert_eq!(turns.len(), SESSION_COUNT);
    assert!(turns.values().all(|turns| *turns == [0, 1, 2]), "{turns:?}");
    assert_eq!(stdio.wait_for_exit().data(), "");
    assert_eq!(fixture.outcomes(), (600, 0));
    fixture.assert_undamaged();
}

#[test]
fn c06_stream_events_precede_the_reply() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two three").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&json!({"id": 1, "session": "s", "text": "count", "stream": true}));
    let first = json!({"id": 1, "session": "s", "event": {"type": "text", "delta": "one "}});
    assert_eq!(stdio.recv_line(), first, "the model has sent no more");
    barrier.release();
    let mut text = "one ".to_owned();
    let mut types = BTreeSet::new();
    let answer = loop {
        let line = stdio.recv_line();
        assert_eq!((&line["id"], &line["session"]), (&json!(1), &json!("s")));
        let Some(event) = line.get("event") else { break line };
        text += event["delta"].as_str().unwrap_or_default();
        types.insert(event["type"].as_str().unwrap().to_owned());
    };
    assert_eq!((text.as_str(), &answer["text"]), ("one two three", &json!("one two three")));
    assert_eq!(types, BTreeSet::from(["final", "text", "usage"].map(str::to_owned)));
    assert_eq!(stdio.close().data(), "");
}

#[test]
fn x03_another_process_repeats_the_reply_of_a_known_event_id() {
    let fixture = CliFixture::new();
    let line = json!({"id": 1, "session": "s", "text": "hello", "event_id": "e-1"});
    let mut stdio = StdioServer::start(&fixture);
    let first = stdio.send_and_recv(&line);
    let mut expected = first.clone();
    expected["id"] = json!(2);
    expected["duplicate"] = json!(true);
    let again = json!({"id": 2, "session": "s", "text": "hello", "event_id": "e-1"});
    assert_eq!(stdio.send_and_recv(&again), expected);
    assert_eq!(stdio.close().data(), "");

    let mut stdio = StdioServer::start(&fixture);
    assert_eq!(stdio.send_and_recv(&again), expected);
    assert_eq!(stdio.close().data(), "");
    assert_eq!(entries_of_kind(&fixture.tape("s"), "message").len(), 2, "it had one turn");
    assert_eq!(fixture.outcomes(), (1, 0));
}

#[test]
fn c06_invalid_line_is_rejected_with_a_hint_and_later_lines_are_served() {
    let fixture = CliFixture::new().set("CAPSTAN_MAX_MESSAGE_BYTES", "64");
    let mut stdio = StdioServer::start(&fixture);
    let too_large = stdio_request(9, "s", &"x".repeat(65)).to_string();
    let too_long = "x".repeat(10_000_000);
    let lines: [(&[u8], Value, &str); 11] = [
        (b"{\"id\":1,\"session\":", Value::Null, "line-not-json"),
        (b"[\"session\",\"text\"]", Value::Null, "line-not-object"),
        (b"{\"id\":3,\"session\":\"s\"}", json!(3), "line-field-missing"),
        (b"{\"id\":4,\"session\":\"s\",\"text\":\"x\",\"steam\":true}", json!(4), "line-field-unknown"),
        (b"{\"id\":5,\"session\":5,\"text\":\"x\"}", json!(5), "line-field-invalid"),
        (b"{\"id\":6,\"session\":\"s\",\"text\":\"x\",\"event_time\":\"soon\"}", json!(6), "line-field-invalid"),
        (b"{\"id\":7,\"session\":\"s\",\"text\":\"  \"}", json!(7), "line-text-empty"),
        (b"{\"id\":8,\"session\":\"s\",\"text\":\"\xff\"}", Value::Null, "line-not-utf8"),
        (too_large.as_bytes(), json!(9), "message-too-large"),
        (b"{\"id\":10,\"session\":\"s\",\"text\":\"\0\"}", Value::Null, "line-not-json"),
        (too_long.as_bytes(), Value::Null, "line-too-long"),
    ];
    for (index, (line, id, code)) in lines.into_iter().enumerate() {
        stdio.write(line);
        stdio.write("\n");
        let reply = stdio.recv_line();
        assert_eq!((&reply["id"], &reply["line"]), (&id, &json!(index + 1)), "{reply}");
        assert_eq!(reply["error"]["code"], code, "{reply}");
        let word = |key: &str| reply["error"][key].as_str().is_some_and(|text| !text.is_empty());
        assert!(word("message") && word("hint"), "{reply}");
    }
    assert_eq!(stdio.send_and_recv(&stdio_request(12, "s", "still there"))["outcome"], "replied");
    assert_eq!(stdio.close().data(), "");
    assert_eq!(fixture.outcomes(), (1, 0), "nothing of the rejected lines was stored");
}

#[test]
fn c06_failed_turn_replies_with_its_notice_and_is_logged() {
    let fixture = CliFixture::new().set("CAPSTAN_MODEL", "missing:x");
    let mut stdio = StdioServer::start(&fixture);
    let answer = stdio.send_and_recv(&stdio_request(1, "s", "hello"));
    assert_eq!(answer["outcome"], "failed");
    assert!(answer["text"].as_str().unwrap().contains("(model-unknown)"), "{answer}");
    let output = stdio.close().succeeded();
    assert_eq!(output.stdout, "");
    assert!(output.stderr.contains("model-unknown") && output.stderr.contains("missing"), "{output:?}");
}

#[test]
fn a03_c06_failed_command_and_failed_turn_have_an_error_with_a_code() {
    let fixture = CliFixture::new();
    let mut stdio = StdioServer::start(&fixture);
    let line = json!({"id": 1, "session": "s", "text": ",bash 'exit 3'", "event_id": "e-1"});
    let failed = stdio.send_and_recv(&line);
    let error = json!({"code": "command-failed", "message": "the command bash failed"});
    assert_eq!((&failed["outcome"], &failed["error"]), (&json!("replied"), &error));
    let mut expected = failed.clone();
    expected["duplicate"] = json!(true);
    assert_eq!(stdio.send_and_recv(&line), expected);
    assert_eq!(stdio.send_and_recv(&stdio_request(2, "s", ",bash 'echo fine'")).get("error"), None);
    let turn = stdio.send_and_recv(&stdio_request(3, "s", ",fs.read 'open"));
    assert_eq!(turn["outcome"], "failed");
    assert_eq!(turn["error"], json!({"code": "command-invalid", "message": turn["text"]}));
    assert_eq!(stdio.close().succeeded().stdout, "");

    let mut stdio = StdioServer::start(&fixture);
    assert_eq!(stdio.send_and_recv(&line), expected);
    assert_eq!(stdio.close().succeeded().stdout, "");
}

#[test]
fn c06_end_of_input_waits_for_running_turns() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&stdio_request(1, "s", "hello"));
    stdio.close_stdin();
    wait_for_barrier(&barrier);
    barrier.release();
    assert_eq!(stdio.recv_line()["text"], "one two");
    assert_eq!(stdio.wait_for_exit().data(), "");
}

#[test]
fn c06_line_for_a_full_queue_is_rejected_and_can_be_sent_again() {
    let barrier = ReplyBarrier::new();
    let replies = ["one", "two", "three"].map(|text| ScriptedReply::text(format!("{text} done")));
    let [one, two, three] = replies;
    let server = ScriptedModel::start_blocking(vec![one.with_barrier(&barrier), two, three]);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_SESSION_QUEUE", "1");
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&stdio_request(1, "s", "one"));
    wait_for_barrier(&barrier);
    stdio.send_line(&stdio_request(2, "s", "two"));
    let mut three = stdio_request(3, "s", "three");
    three["event_id"] = "three".into();
    let refused = stdio.send_and_recv(&three);
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(3), &json!("queue-full")));
    assert!(refused["error"]["hint"].as_str().unwrap().starts_with("send the message again"), "{refused}");
    barrier.release();
    assert_eq!(stdio.recv_line()["text"], "one done");
    assert_eq!(stdio.recv_line()["text"], "two done");
    let answer = stdio.send_and_recv(&three);
    assert_eq!((&answer["text"], &answer["duplicate"]), (&json!("three done"), &Value::Null));
    stdio.close().succeeded();
}

#[test]
fn c02_sigterm_rejects_new_lines_and_lets_running_turns_finish() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("one two").with_barrier(&barrier),
        ScriptedReply::text("never"),
    ]);
    let fixture = CliFixture::with_model(&server);
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&stdio_request(1, "s", "hello"));
    wait_for_barrier(&barrier);
    stdio.signal("TERM");
    stdio.wait_for_stderr("stopping");
    stdio.send_line(&stdio_request(2, "s", "too late"));
    barrier.release();
    assert_eq!(stdio.recv_line()["text"], "one two");
    let output = stdio.wait_for_exit().succeeded();
    assert_eq!(output.stdout, "", "although its input was never closed");
    assert_eq!(fixture.outcomes(), (1, 0), "later lines were not accepted");
}

#[test]
fn x01_signals_cancel_turns_after_the_grace_period() {
    for signal in ["TERM", "INT", "HUP"] {
        let barrier = ReplyBarrier::new();
        let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&barrier)]);
        let fixture = CliFixture::with_model(&server).set("CAPSTAN_STOP_GRACE_SECONDS", "0");
        let mut stdio = StdioServer::start(&fixture);
        stdio.send_line(&stdio_request(1, "s", "hello"));
        wait_for_barrier(&barrier);
        stdio.signal(signal);
        stdio.wait_for_stderr("running turns have 0 s to finish");
        let answer = stdio.recv_line();
        assert_eq!((&answer["id"], &answer["outcome"]), (&json!(1), &json!("cancelled")), "after {signal}");
        assert!(answer["text"].as_str().unwrap().contains("the run was cancelled"), "as documented: {answer}");
        stdio.wait_for_exit().succeeded();
        assert_eq!(fixture.outcomes(), (1, 0), "accepted and settled, after {signal}");
        fixture.assert_undamaged();
    }
}

#[test]
fn t13_interrupting_message_is_answered_and_the_interrupted_one_cancelled() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("one two").with_barrier(&barrier),
        ScriptedReply::text("three"),
    ]);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_CHANNELS__STDIO__ADMISSION", "interrupt");
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&json!({"id": 1, "session": "s", "text": "hello", "stream": true}));
    wait_for_barrier(&barrier);
    stdio.send_line(&stdio_request(2, "s", "rather this"));
    let shown = std::iter::repeat_with(|| stdio.recv_line()).find(|line| line["event"]["type"] != "text").unwrap();
    assert_eq!((&shown["event"]["type"], &shown["event"]["ok"]), (&json!("final"), &json!(false)), "t07: {shown}");
    let interrupted = stdio.recv_line();
    assert_eq!((&interrupted["id"], &interrupted["outcome"]), (&json!(1), &json!("cancelled")));
    assert_eq!(interrupted["text"], "");
    assert_eq!(stdio.recv_line()["text"], "three");
    stdio.close().succeeded();
}

#[test]
fn c02_second_signal_forces_exit() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&stdio_request(1, "s", "hello"));
    wait_for_barrier(&barrier);
    stdio.signal("TERM");
    stdio.wait_for_stderr("stopping");
    stdio.signal("TERM");
    stdio.wait_for_exit().failed("run-cancelled", 130);
    fixture.assert_undamaged();
}

#[test]
fn x03_process_ends_with_its_reader_and_the_reply_is_stored() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let line = json!({"id": 1, "session": "s", "text": "hello", "event_id": "e-1"});
    let mut command = fixture.command(&["serve", "--channel", "stdio"]);
    let mut process = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut ready = String::new();
    output.read_line(&mut ready).unwrap();
    let mut input = process.stdin.take().unwrap();
    writeln!(input, "{line}").unwrap();
    wait_for_barrier(&barrier);
    drop(output);
    barrier.release();
    // The input is still open: the process ends because its replies have no reader.
    process.wait().unwrap();
    let mut complaints = String::new();
    process.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert!(complaints.contains("standard output") && !complaints.contains("panicked"), "{complaints}");
    drop(input);

    assert_eq!(fixture.outcomes(), (1, 0));
    let mut stdio = StdioServer::start(&fixture);
    let again = stdio.send_and_recv(&line);
    assert_eq!((&again["text"], &again["duplicate"]), (&json!("one two"), &json!(true)));
    assert_eq!(stdio.close().data(), "");
}

#[test]
fn c06_stdio_event_has_origin_and_time() {
    let fixture = CliFixture::new();
    let mut stdio = StdioServer::start(&fixture);
    let line = json!({
        "id": 1, "session": "s", "text": "hello", "event_id": "e-1", "event_time": "2026-11-15T21:57:42+01:00"
    });
    assert_eq!(stdio.send_and_recv(&line)["outcome"], "replied");
    stdio.close().data();
    let entries = fixture.tape("s");
    let accepted = crate::support::entries_named(&entries, "event.accepted");
    let event = &accepted[0]["payload"]["data"]["event"];
    assert_eq!((&event["source"], &event["conversation_id"]), (&json!("stdio"), &json!("s")));
    assert_eq!((&event["session_id"], &event["event_id"]), (&json!("s"), &json!("e-1")));
    assert_eq!(event["event_time"], "2026-11-15T20:57:42.000000+00:00");
}

#[test]
fn c02_gateway_is_an_alias_and_run_leaves_standard_input_unread() {
    let fixture = CliFixture::new();
    let stdio = StdioServer::with_command(fixture.command(&["gateway", "--channel", "all"]));
    assert_eq!(stdio.close().data(), "");
    fixture.capstan_with_input(&["run", "hello"], b"{\"session\":\"s\",\"text\":\"not for you\"}\n").data();
    assert_eq!(fixture.outcomes(), (1, 0));
}

#[test]
fn c02_settings_of_an_unknown_channel_are_a_warning() {
    let fixture = CliFixture::new().config("[channels.stdoi]\nadmission = 'steer'\n");
    fixture.capstan(&["run", "hello"]).data();
    let warns = |output: &str| output.contains("channels.stdoi") && output.contains("did you mean \"channels.stdio\"?");
    let output = StdioServer::start(&fixture).close().succeeded();
    assert!(warns(&output.stderr), "{output:?}");
    let output = fixture.capstan(&["config", "show"]).succeeded();
    assert!(warns(&output.stderr), "{output:?}");
    let found = fixture.capstan(&["doctor", "--json"]).json();
    let checks = found["checks"].as_array().unwrap();
    let config = checks.iter().find(|check| check["check"] == "config").unwrap();
    assert_eq!(config["status"], "warning");
    assert!(warns(config["details"][0].as_str().unwrap()), "{config}");
    fixture.capstan(&["serve", "--channel", "stdoi"]).refused("channel-unknown", 2);
}

/// The example in this language in the documentation of the channel.
fn docs_example(language: &str) -> String {
    let page = include_str!("../../../../docs/stdio.md");
    let block = page.split_once(&format!("```{language}\n")).expect("an example").1;
    block.split_once("```").expect("its end").0.to_owned()
}

/// Runs an example of the documentation with the binary on the path.
fn run_example(interpreter: &str, argument: &str, code: &str) -> String {
    let fixture = CliFixture::new();
    let command = fixture.command::<&str>(&[]);
    let binary = std::path::Path::new(command.get_program()).parent().unwrap().to_owned();
    let mut run = std::process::Command::new(interpreter);
    run.args([argument, code]).current_dir(fixture.workspace());
    let path = std::env::var("PATH").unwrap_or_default();
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CAPSTAN_")) {
        run.env_remove(name);
    }
    run.env("PATH", format!("{}:{path}", binary.display())).env("CAPSTAN_HOME", fixture.home());
    let output = run.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn c06_examples_of_the_documentation_work() {
    let lines = run_example("sh", "-c", &docs_example("sh"));
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({"ready": true}));
    let ids: BTreeSet<String> = lines[1..].iter().map(|line| line["id"].to_string()).collect();
    assert_eq!(ids, BTreeSet::from(["1", "2"].map(str::to_owned)));
    assert!(lines[1..].iter().all(|line| line["outcome"] == "replied"), "{lines:?}");

    let output = run_example("python3", "-c", &docs_example("python"));
    assert!(output.contains("alice replied") && output.contains("bob replied"), "{output}");
}

#[test]
fn x02_end_of_input_recovers_events_of_another_dead_process() {
    let fixture = CliFixture::new();
    let stdio = StdioServer::start(&fixture);
    let mut neighbour = fixture.command(&["run", "[[slow:600]] one two three", "--session-id", "k"]).spawn().unwrap();
    while fixture.outcomes() != (0, 1) {
        std::thread::yield_now();
    }
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    assert_eq!(stdio.close().data(), "");
    assert_eq!(fixture.outcomes(), (1, 0));
}

#[test]
fn g10_interrupted_run_reports_the_usage_of_its_model_calls() {
    let fixture = CliFixture::new();
    let stdio = StdioServer::start(&fixture);
    let slow = "[[tool:bash cmd=\"sleep 600\"]]";
    let mut neighbour = fixture.command(&["run", slow, "--session-id", "k"]).spawn().unwrap();
    while fixture.outcomes() != (0, 1) || entries_of_kind(&fixture.tape("k"), "tool_call").is_empty() {
        std::thread::yield_now();
    }
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    assert_eq!(stdio.close().data(), "");
    let runs = fixture.capstan(&["runs", "list", "--json"]).json();
    assert_eq!(runs[0]["status"], "interrupted", "{runs}");
    assert!(runs[0]["usage"]["total_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{runs}");
}

#[test]
fn a01_message_of_maximum_size_is_answered() {
    let fixture = CliFixture::new();
    fixture.capstan_with_input(&["run", "-"], "\"\n".repeat(512 * 1024).as_bytes()).data();
    fixture.assert_undamaged();
}

#[test]
fn t11_provider_failure_is_sent_as_a_code_and_a_sentence() {
    let error = json!({"error": {"message": "bad thing at /srv/llm/app.py"}});
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::status(400, error.to_string())]);
    let fixture = CliFixture::with_model(&server);
    let mut stdio = StdioServer::start(&fixture);
    stdio.write(format!("{}\n", json!({"session": "s", "text": "hello", "stream": true})));
    let mut lines = vec![stdio.recv_line()];
    while lines.last().is_some_and(|line| line["outcome"].is_null()) {
        lines.push(stdio.recv_line());
    }
    let text = json!(lines).to_string();
    assert!(text.contains(r#""code":"model-rejected""#) && text.contains("(model-rejected)"), "{text}");
    assert!(!text.contains("/srv/llm") && !text.contains("127.0.0.1"), "{text}");
    let log = stdio.close().succeeded().stderr;
    assert!(log.contains("/srv/llm/app.py"), "the log has the whole error: {log}");
    let tape = json!(fixture.tape("s")).to_string();
    assert!(tape.contains("/srv/llm/app.py"), "the tape has the whole error: {tape}");
}

#[test]
fn c02_serve_without_flags_listens_on_the_enabled_channels() {
    let line = b"{\"id\": 1, \"session\": \"s\", \"text\": \"hello\"}\n";
    for command in ["serve", "gateway"] {
        let reply = CliFixture::new().capstan_with_input(&[command], line).succeeded().stdout;
        assert!(reply.contains("You said: hello"), "{reply}");
    }
    let fixture = CliFixture::new().config("enabled_channels = ['stdoi']\n");
    let refused = fixture.capstan(&["serve"]).refused("channel-unknown", 2).stderr;
    assert!(refused.contains("enabled_channels: unknown channel stdoi"), "{refused}");
    let reply = fixture.capstan_with_input(&["serve", "--channel", "stdio"], line).succeeded().stdout;
    assert!(reply.contains("You said: hello"), "the flag overrides the setting: {reply}");
}
