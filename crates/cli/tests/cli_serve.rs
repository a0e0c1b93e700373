//! `capstan serve --channel stdio`, spoken with over pipes.

mod cli_support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use cli_support::{CliFixture, StdioServer, entries_of_kind, wait_for_gate};
use serde_json::{Value, json};

fn stdio_request(id: impl Into<Value>, session: &str, text: &str) -> Value {
    json!({"id": id.into(), "session": session, "text": text})
}

#[test]
fn c06_a_line_gets_one_line_and_the_end_of_input_ends_it() {
    let place = CliFixture::new();
    let mut wire = StdioServer::start(&place);
    let mut answer = wire.send_and_recv(&stdio_request(json!({"n": [1]}), "work", "hello"));
    let text = answer["text"].take();
    assert!(text.as_str().unwrap().ends_with("You said: hello"), "{text}");
    assert!(answer["run_id"].as_str().unwrap().starts_with("run-"));
    assert_eq!((&answer["id"], &answer["session"]), (&json!({"n": [1]}), &json!("work")));
    assert_eq!(answer["outcome"], "replied");
    assert_eq!(wire.close().data(), "", "nothing else is printed");
    assert_eq!(entries_of_kind(&place.tape("work"), "message").len(), 2, "the message and the reply");
}

#[test]
fn g01_a_line_that_says_more_than_its_event_is_kept_as_it_came() {
    let place = CliFixture::new();
    let mut wire = StdioServer::start(&place);
    let line = "{\"session\": \"s\",  \"id\": \"ticket 7\", \"text\": \"hello\"}";
    wire.write(format!("{line}\n"));
    let run = wire.recv_line()["run_id"].as_str().unwrap().to_owned();
    let plain = wire.send_and_recv(&json!({"session": "s", "text": "hello"}))["run_id"].as_str().unwrap().to_owned();
    // Longer than what stands with an acceptance.
    let long_line = json!({"session": "s", "id": 8, "text": "hello ".repeat(400)}).to_string();
    wire.write(format!("{long_line}\n"));
    let long = wire.recv_line()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(wire.close().data(), "");
    let shown = |run: &str| place.capstan(&["runs", "show", run, "--json"]).json()["accepted"].clone();
    assert_eq!(shown(&run)["raw"], line);
    assert_eq!(shown(&plain)["raw"], Value::Null, "its event says all of it");
    assert_eq!(shown(&long)["raw"], long_line.as_str());
    let inbound = place.capstan(&["tape", "events", "s", "--json"]).values();
    let refs: Vec<bool> = inbound.iter().filter(|fact| fact["fact"] == "inbound").map(has_raw_ref).collect();
    assert_eq!(refs, [true, false, true]);
    place.assert_undamaged();
}

fn has_raw_ref(inbound: &Value) -> bool {
    inbound["event"]["raw_ref"]["blob"].is_string()
}

#[test]
fn c06_a_last_line_without_its_end_is_taken() {
    let place = CliFixture::new();
    let mut wire = StdioServer::start(&place);
    wire.write(stdio_request(1, "s", "hello").to_string());
    wire.close_stdin();
    assert_eq!(wire.recv_line()["outcome"], "replied");
    assert_eq!(wire.wait_for_exit().data(), "");
}

#[test]
fn t13_c06_many_sessions_go_through_one_process_each_in_its_order() {
    const SESSION_COUNT: usize = 200;
    const TURNS_PER_SESSION: usize = 3;
    let place = CliFixture::new();
    let mut wire = StdioServer::start(&place);
    for turn in 0..TURNS_PER_SESSION {
        for session in 0..SESSION_COUNT {
            wire.send_line(&stdio_request(turn, &format!("s{session}"), &format!("turn {turn} of {session}")));
        }
    }
    wire.close_stdin();
    let mut turns: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for _ in 0..SESSION_COUNT * TURNS_PER_SESSION {
        let answer = wire.recv_line();
        let session = answer["session"].as_str().unwrap().to_owned();
        let turn = answer["id"].as_u64().unwrap();
        let said = format!("turn {turn} of {}", &session[1..]);
        assert!(answer["text"].as_str().unwrap().ends_with(&said), "{answer}");
        turns.entry(session).or_default().push(turn);
    }
    assert_eq!(turns.len(), SESSION_COUNT);
    assert!(turns.values().all(|turns| *turns == [0, 1, 2]), "{turns:?}");
    assert_eq!(wire.wait_for_exit().data(), "");
    assert_eq!(place.outcomes(), (600, 0));
    place.assert_undamaged();
}

#[test]
fn c06_stream_events_come_before_the_answer_while_the_model_is_running() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two three").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let mut wire = StdioServer::start(&place);
    wire.send_line(&json!({"id": 1, "session": "s", "text": "count", "stream": true}));
    let first = json!({"id": 1, "session": "s", "event": {"type": "text", "delta": "one "}});
    assert_eq!(wire.recv_line(), first, "the model has said no more");
    gate.release();
    let mut text = "one ".to_owned();
    let mut types = BTreeSet::new();
    let answer = loop {
        let line = wire.recv_line();
        assert_eq!((&line["id"], &line["session"]), (&json!(1), &json!("s")));
        let Some(event) = line.get("event") else { break line };
        text += event["delta"].as_str().unwrap_or_default();
        types.insert(event["type"].as_str().unwrap().to_owned());
    };
    assert_eq!((text.as_str(), &answer["text"]), ("one two three", &json!("one two three")));
    assert_eq!(types, BTreeSet::from(["final", "text", "usage"].map(str::to_owned)));
    assert_eq!(wire.close().data(), "");
}

#[test]
fn x03_an_event_id_that_was_seen_before_gets_the_same_answer_from_another_process_too() {
    let place = CliFixture::new();
    let line = json!({"id": 1, "session": "s", "text": "hello", "event_id": "e-1"});
    let mut wire = StdioServer::start(&place);
    let first = wire.send_and_recv(&line);
    let mut expected = first.clone();
    expected["id"] = json!(2);
    expected["duplicate"] = json!(true);
    let again = json!({"id": 2, "session": "s", "text": "hello", "event_id": "e-1"});
    assert_eq!(wire.send_and_recv(&again), expected);
    assert_eq!(wire.close().data(), "");

    let mut wire = StdioServer::start(&place);
    assert_eq!(wire.send_and_recv(&again), expected);
    assert_eq!(wire.close().data(), "");
    assert_eq!(entries_of_kind(&place.tape("s"), "message").len(), 2, "it had one turn");
    assert_eq!(place.outcomes(), (1, 0));
}

#[test]
fn c06_a_line_that_cannot_be_used_is_refused_with_a_hint_and_the_rest_goes_on() {
    let place = CliFixture::new().set("CAPSTAN_MAX_MESSAGE_BYTES", "64");
    let mut wire = StdioServer::start(&place);
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
        wire.write(line);
        wire.write("\n");
        let told = wire.recv_line();
        assert_eq!((&told["id"], &told["line"]), (&id, &json!(index + 1)), "{told}");
        assert_eq!(told["error"]["code"], code, "{told}");
        let word = |key: &str| told["error"][key].as_str().is_some_and(|text| !text.is_empty());
        assert!(word("message") && word("hint"), "{told}");
    }
    assert_eq!(wire.send_and_recv(&stdio_request(12, "s", "still there"))["outcome"], "replied");
    assert_eq!(wire.close().data(), "");
    assert_eq!(place.outcomes(), (1, 0), "of what was refused nothing was kept");
}

#[test]
fn c06_a_turn_that_fails_is_answered_with_its_notice_and_told_on_the_standard_error() {
    let place = CliFixture::new().set("CAPSTAN_MODEL", "nobody:x");
    let mut wire = StdioServer::start(&place);
    let answer = wire.send_and_recv(&stdio_request(1, "s", "hello"));
    assert_eq!(answer["outcome"], "failed");
    assert!(answer["text"].as_str().unwrap().contains("nobody"), "{answer}");
    let said = wire.close().succeeded();
    assert_eq!(said.stdout, "");
    assert!(said.stderr.contains("model-unknown"), "{said:?}");
}

#[test]
fn c06_the_end_of_input_waits_for_turns_that_are_running() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let mut wire = StdioServer::start(&place);
    wire.send_line(&stdio_request(1, "s", "hello"));
    wire.close_stdin();
    wait_for_gate(&gate);
    gate.release();
    assert_eq!(wire.recv_line()["text"], "one two");
    assert_eq!(wire.wait_for_exit().data(), "");
}

#[test]
fn c06_a_line_for_a_session_with_too_much_to_do_is_refused_and_can_be_written_again() {
    let gate = ReplyBarrier::new();
    let replies = ["one", "two", "three"].map(|text| ScriptedReply::text(format!("{text} done")));
    let [one, two, three] = replies;
    let server = ScriptedModel::start_blocking(vec![one.with_barrier(&gate), two, three]);
    let place = CliFixture::with_model(&server).set("CAPSTAN_SESSION_QUEUE", "1");
    let mut wire = StdioServer::start(&place);
    wire.send_line(&stdio_request(1, "s", "one"));
    wait_for_gate(&gate);
    wire.send_line(&stdio_request(2, "s", "two"));
    let mut three = stdio_request(3, "s", "three");
    three["event_id"] = "three".into();
    let refused = wire.send_and_recv(&three);
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(3), &json!("queue-full")));
    assert!(refused["error"]["hint"].as_str().unwrap().starts_with("send it again"), "{refused}");
    gate.release();
    assert_eq!(wire.recv_line()["text"], "one done");
    assert_eq!(wire.recv_line()["text"], "two done");
    let answer = wire.send_and_recv(&three);
    assert_eq!((&answer["text"], &answer["duplicate"]), (&json!("three done"), &Value::Null));
    wire.close().succeeded();
}

#[test]
fn c02_told_to_end_it_takes_no_more_and_lets_what_runs_end() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("one two").with_barrier(&gate),
        ScriptedReply::text("never"),
    ]);
    let place = CliFixture::with_model(&server);
    let mut wire = StdioServer::start(&place);
    wire.send_line(&stdio_request(1, "s", "hello"));
    wait_for_gate(&gate);
    wire.signal("TERM");
    wire.wait_for_stderr("stopping");
    wire.send_line(&stdio_request(2, "s", "too late"));
    gate.release();
    assert_eq!(wire.recv_line()["text"], "one two");
    let said = wire.wait_for_exit().succeeded();
    assert_eq!(said.stdout, "", "and its input was never closed");
    assert_eq!(place.outcomes(), (1, 0), "what came too late was not taken");
}

#[test]
fn x01_told_to_end_it_cancels_what_does_not_end_in_time() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server).set("CAPSTAN_STOP_GRACE_SECONDS", "0");
    let mut wire = StdioServer::start(&place);
    wire.send_line(&stdio_request(1, "s", "hello"));
    wait_for_gate(&gate);
    wire.signal("INT");
    let answer = wire.recv_line();
    assert_eq!((&answer["id"], &answer["outcome"]), (&json!(1), &json!("cancelled")));
    assert!(answer["text"].as_str().unwrap().contains("the run was cancelled"), "as the page says: {answer}");
    wire.wait_for_exit().succeeded();
    assert_eq!(place.outcomes(), (1, 0), "accepted and settled");
    place.assert_undamaged();
}

#[test]
fn t13_a_message_that_interrupts_is_answered_and_the_one_it_interrupts_is_cancelled_without_a_word() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("one two").with_barrier(&gate),
        ScriptedReply::text("three"),
    ]);
    let place = CliFixture::with_model(&server).set("CAPSTAN_CHANNELS__STDIO__ADMISSION", "interrupt");
    let mut wire = StdioServer::start(&place);
    wire.send_line(&json!({"id": 1, "session": "s", "text": "hello", "stream": true}));
    wait_for_gate(&gate);
    wire.send_line(&stdio_request(2, "s", "rather this"));
    let shown = std::iter::repeat_with(|| wire.recv_line()).find(|line| line["event"]["type"] != "text").unwrap();
    assert_eq!((&shown["event"]["type"], &shown["event"]["ok"]), (&json!("final"), &json!(false)), "t07: {shown}");
    let interrupted = wire.recv_line();
    assert_eq!((&interrupted["id"], &interrupted["outcome"]), (&json!(1), &json!("cancelled")));
    assert_eq!(interrupted["text"], "");
    assert_eq!(wire.recv_line()["text"], "three");
    wire.close().succeeded();
}

#[test]
fn c02_told_twice_it_ends_at_once() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let mut wire = StdioServer::start(&place);
    wire.send_line(&stdio_request(1, "s", "hello"));
    wait_for_gate(&gate);
    wire.signal("TERM");
    wire.wait_for_stderr("stopping");
    wire.signal("TERM");
    wire.wait_for_exit().failed("run-cancelled", 130);
    place.assert_undamaged();
}

#[test]
fn x03_when_its_reader_is_gone_it_ends_and_the_answer_is_kept_for_who_asks_again() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let line = json!({"id": 1, "session": "s", "text": "hello", "event_id": "e-1"});
    let mut command = place.command(&["serve", "--channel", "stdio"]);
    let mut process = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut ready = String::new();
    output.read_line(&mut ready).unwrap();
    let mut input = process.stdin.take().unwrap();
    writeln!(input, "{line}").unwrap();
    wait_for_gate(&gate);
    drop(output);
    gate.release();
    // Its input is still open: it ends because nobody would read what it answers.
    process.wait().unwrap();
    let mut complaints = String::new();
    process.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert!(complaints.contains("standard output") && !complaints.contains("panicked"), "{complaints}");
    drop(input);

    assert_eq!(place.outcomes(), (1, 0));
    let mut wire = StdioServer::start(&place);
    let again = wire.send_and_recv(&line);
    assert_eq!((&again["text"], &again["duplicate"]), (&json!("one two"), &json!(true)));
    assert_eq!(wire.close().data(), "");
}

#[test]
fn c06_an_event_says_where_it_came_from_and_when() {
    let place = CliFixture::new();
    let mut wire = StdioServer::start(&place);
    let line = json!({
        "id": 1, "session": "s", "text": "hello", "event_id": "e-1", "event_time": "2026-11-15T21:57:42+01:00"
    });
    assert_eq!(wire.send_and_recv(&line)["outcome"], "replied");
    wire.close().data();
    let entries = place.tape("s");
    let accepted = cli_support::entries_named(&entries, "event.accepted");
    let event = &accepted[0]["payload"]["data"]["event"];
    assert_eq!((&event["source"], &event["conversation_id"]), (&json!("stdio"), &json!("s")));
    assert_eq!((&event["session_id"], &event["event_id"]), (&json!("s"), &json!("e-1")));
    assert_eq!(event["event_time"], "2026-11-15T20:57:42.000000+00:00");
}

#[test]
fn c02_serving_has_an_alias_and_a_run_does_not_read_what_is_meant_for_stdio() {
    let place = CliFixture::new();
    let wire = StdioServer::with_command(place.command(&["gateway", "--channel", "all"]));
    assert_eq!(wire.close().data(), "");
    place.capstan_with_input(&["run", "hello"], b"{\"session\":\"s\",\"text\":\"not for you\"}\n").data();
    assert_eq!(place.outcomes(), (1, 0));
}

#[test]
fn c02_what_is_set_for_a_channel_nobody_provides_is_warned_of_and_stops_nothing() {
    let place = CliFixture::new().config("[channels.stdoi]\nadmission = 'steer'\n");
    place.capstan(&["run", "hello"]).data();
    let warns = |said: &str| said.contains("channels.stdoi") && said.contains("did you mean \"channels.stdio\"?");
    let said = StdioServer::start(&place).close().succeeded();
    assert!(warns(&said.stderr), "{said:?}");
    let said = place.capstan(&["config", "show"]).succeeded();
    assert!(warns(&said.stderr), "{said:?}");
    let found = place.capstan(&["doctor", "--json"]).json();
    let checks = found["checks"].as_array().unwrap();
    let config = checks.iter().find(|check| check["check"] == "config").unwrap();
    assert_eq!(config["status"], "warning");
    assert!(warns(config["details"][0].as_str().unwrap()), "{config}");
    place.capstan(&["serve", "--channel", "stdoi"]).refused("channel-unknown", 2);
}

/// The block of a language in the page about the channel.
fn docs_example(language: &str) -> String {
    let page = include_str!("../../../docs/stdio.md");
    let block = page.split_once(&format!("```{language}\n")).expect("an example").1;
    block.split_once("```").expect("its end").0.to_owned()
}

/// Runs an example of the page with the binary on the path.
fn run_example(interpreter: &str, argument: &str, code: &str) -> String {
    let place = CliFixture::new();
    let command = place.command::<&str>(&[]);
    let binary = std::path::Path::new(command.get_program()).parent().unwrap().to_owned();
    let mut run = std::process::Command::new(interpreter);
    run.args([argument, code]).current_dir(place.workspace());
    let path = std::env::var("PATH").unwrap_or_default();
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CAPSTAN_")) {
        run.env_remove(name);
    }
    run.env("PATH", format!("{}:{path}", binary.display())).env("CAPSTAN_HOME", place.home());
    let output = run.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn c06_the_examples_of_the_page_work() {
    let lines = run_example("sh", "-c", &docs_example("sh"));
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({"ready": true}));
    let ids: BTreeSet<String> = lines[1..].iter().map(|line| line["id"].to_string()).collect();
    assert_eq!(ids, BTreeSet::from(["1", "2"].map(str::to_owned)));
    assert!(lines[1..].iter().all(|line| line["outcome"] == "replied"), "{lines:?}");

    let said = run_example("python3", "-c", &docs_example("python"));
    assert!(said.contains("alice replied") && said.contains("bob replied"), "{said}");
}

#[test]
fn x02_what_a_neighbour_left_that_died_is_taken_up_at_the_end_of_input() {
    let place = CliFixture::new();
    let wire = StdioServer::start(&place);
    let mut neighbour = place.command(&["run", "[[slow:600]] one two three", "--session-id", "k"]).spawn().unwrap();
    while place.outcomes() != (0, 1) {
        std::thread::yield_now();
    }
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    assert_eq!(wire.close().data(), "");
    assert_eq!(place.outcomes(), (1, 0));
}

#[test]
fn g10_a_run_that_was_cut_off_has_used_what_its_models_said() {
    let place = CliFixture::new();
    let wire = StdioServer::start(&place);
    let slow = "[[tool:bash cmd=\"sleep 600\"]]";
    let mut neighbour = place.command(&["run", slow, "--session-id", "k"]).spawn().unwrap();
    while place.outcomes() != (0, 1) || entries_of_kind(&place.tape("k"), "tool_call").is_empty() {
        std::thread::yield_now();
    }
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    assert_eq!(wire.close().data(), "");
    let runs = place.capstan(&["runs", "list", "--json"]).json();
    assert_eq!(runs[0]["status"], "interrupted", "{runs}");
    assert!(runs[0]["usage"]["total_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{runs}");
}

#[test]
fn a01_a_message_as_long_as_one_may_be_is_answered() {
    let place = CliFixture::new();
    place.capstan_with_input(&["run", "-"], "\"\n".repeat(512 * 1024).as_bytes()).data();
    place.assert_undamaged();
}
