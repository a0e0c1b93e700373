//! `capstan runs`: the ledger, and cancellation.

use std::process::Child;

use crate::support::{BinaryOutput, CliFixture, wait_for_barrier};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply, send_signal};
use rusqlite::Connection;
use serde_json::{Value, json};

fn run_and_get_id(fixture: &CliFixture, arguments: &[&str]) -> String {
    let output = fixture.capstan(&[&["run", "--json"], arguments].concat());
    let object: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    object["run_id"].as_str().expect("a run").to_owned()
}

fn listed_run_ids(fixture: &CliFixture, arguments: &[&str]) -> Vec<String> {
    let listed = fixture.capstan(&[&["runs", "list", "--json"], arguments].concat()).json();
    listed.as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
}

/// Starts a process whose run waits for its model, and returns it with the id of the run.
fn start_held_run(fixture: &CliFixture, barrier: &ReplyBarrier) -> (Child, String) {
    let process = fixture.command(&["run", "first"]).spawn().unwrap();
    wait_for_barrier(barrier);
    let [run] = listed_run_ids(fixture, &["--status", "running"]).try_into().expect("one run");
    (process, run)
}

#[test]
fn g10_runs_are_listed_newest_first_and_filtered() {
    let failing = ScriptedReply::status(401, "{\"error\": {\"message\": \"no\"}}");
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one"), failing, ScriptedReply::text("three")]);
    let fixture = CliFixture::with_model(&server);
    assert_eq!(fixture.capstan(&["runs", "list"]).data(), "", "no runs yet");
    assert!(!fixture.home().exists());
    let first = run_and_get_id(&fixture, &["a"]);
    let second = run_and_get_id(&fixture, &["b"]);
    let third = run_and_get_id(&fixture, &["c", "--session-id", "other"]);
    assert_eq!(listed_run_ids(&fixture, &[]), [third.clone(), second.clone(), first.clone()]);
    assert_eq!(listed_run_ids(&fixture, &["--limit", "2"]), [third.clone(), second.clone()]);
    assert_eq!(listed_run_ids(&fixture, &["--status", "failed"]), std::slice::from_ref(&second));
    assert_eq!(listed_run_ids(&fixture, &["--session", "cli:local", "--limit", "1"]), [second]);
    assert_eq!(
        listed_run_ids(&fixture, &["--session-id", "cli:local", "--status", "completed"]),
        std::slice::from_ref(&first)
    );
    assert_eq!(listed_run_ids(&fixture, &["--session", "missing"]), Vec::<String>::new());
    let lines = fixture.capstan(&["runs", "list"]).lines();
    assert!(lines[2].starts_with(&first) && lines[2].contains("completed") && lines[2].contains("cli:local"));
    fixture.capstan(&["runs", "list", "--status", "lost"]).refused("usage", 2);
}

#[test]
fn g10_showing_a_run_reads_no_outcomes_of_other_sessions() {
    let fixture = CliFixture::new();
    let run = run_and_get_id(&fixture, &["hello"]);
    run_and_get_id(&fixture, &["hello", "--session-id", "other"]);
    // A command that reads every outcome of the home would fail on this one.
    let database = Connection::open(fixture.database()).unwrap();
    let damaged = database.execute("UPDATE inbox SET tape = 'no name of a tape' WHERE session = 'other'", []).unwrap();
    assert_eq!(damaged, 1);
    drop(database);
    let shown = fixture.capstan(&["runs", "show", &run, "--json"]).json();
    assert_eq!((&shown["run_id"], &shown["folded"]), (&json!(run), &json!([])));
}

#[test]
fn g10_run_is_shown_with_its_results_in_order() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo one"}))]),
        ScriptedReply::text_with_usage("done", 12, 3),
    ]);
    let fixture = CliFixture::with_model(&server);
    let run = run_and_get_id(&fixture, &["go"]);
    // A command calls no model, so no usage is reported.
    let other = run_and_get_id(&fixture, &[",help"]);
    let shown = fixture.capstan(&["runs", "show", &run, "--json"]).json();
    assert_eq!((&shown["run_id"], &shown["status"]), (&json!(run), &json!("completed")));
    assert_eq!(shown["accepted"]["text"], "go");
    assert_eq!(shown["outcome"], json!({"outcome": "replied", "text": "done"}));
    assert_eq!(shown["usage"]["prompt_tokens"], 22, "of both calls");
    assert_eq!(shown["grant"]["tools"], json!({"names": "all", "operations": ["detail", "call"]}));
    assert_eq!(shown["folded"], json!([]));

    let of_run: Vec<Value> = fixture.entries().into_iter().filter(|entry| entry["meta"]["run_id"] == *run).collect();
    let results = shown["results"].as_array().unwrap();
    let entries: Vec<&Value> = results.iter().map(|result| &result["entry"]).collect();
    assert_eq!(entries, of_run.iter().map(|entry| &entry["id"]).collect::<Vec<_>>());
    let numbers: Vec<u64> = results.iter().map(|result| result["sequence"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=results.len() as u64).collect::<Vec<_>>());
    let on_the_tape: Vec<&Value> = of_run.iter().map(|entry| &entry["meta"]["sequence"]).collect();
    assert_eq!(on_the_tape, results.iter().map(|result| &result["sequence"]).collect::<Vec<_>>());
    let kinds: Vec<&Value> = results.iter().map(|result| &result["kind"]).filter(|kind| **kind != "event").collect();
    assert_eq!(kinds, ["message", "tool_call", "tool_result", "message"]);
    assert!(results.iter().any(|result| result["what"] == "assistant: done"));

    let text = fixture.capstan(&["runs", "show", &run]).data();
    assert!(text.contains("usage     prompt 22, completion 8"), "{text}");
    assert!(text.contains("\ngrant     all of          models, tools, "), "the text output contains no JSON: {text}");
    let text = fixture.capstan(&["runs", "show", &other]).data();
    assert!(text.contains("usage     unknown"), "unreported usage is not zero: {text}");
    assert_eq!(fixture.capstan(&["runs", "show", &other, "--json"]).json()["usage"], Value::Null);
    fixture.capstan(&["tape", "reset", "cli:local"]).data();
    assert_eq!(fixture.capstan(&["runs", "show", &run, "--json"]).json(), shown, "also in an ended generation");
}

#[test]
fn g10_folded_events_are_shown_with_their_run() {
    let fixture = CliFixture::new();
    let (first, second) = (run_and_get_id(&fixture, &["one"]), run_and_get_id(&fixture, &["two"]));
    let folded = json!({"outcome": "folded", "run_id": second}).to_string();
    let database = Connection::open(fixture.database()).unwrap();
    database.execute("UPDATE outcomes SET outcome = ?1 WHERE run_id = ?2", [&folded, &first]).unwrap();
    let event = fixture.capstan(&["runs", "show", &first, "--json"]).json()["event"].clone();
    let shown = fixture.capstan(&["runs", "show", &second, "--json"]).json();
    assert_eq!(shown["folded"].as_array().map(Vec::len), Some(1));
    assert_eq!(shown["folded"][0]["event"], event);
    let text = fixture.capstan(&["runs", "show", &second]).data();
    assert!(text.contains(&format!("folded    {}", event["event_id"].as_str().unwrap())), "{text}");
}

#[test]
fn g10_run_is_found_by_a_unique_prefix() {
    let fixture = CliFixture::new();
    let run = run_and_get_id(&fixture, &["one"]);
    let shown = fixture.capstan(&["runs", "show", &run[..run.len() - 4], "--json"]).json();
    assert_eq!(shown["run_id"], *run);
    run_and_get_id(&fixture, &["two"]);
    let output = fixture.capstan(&["runs", "show", "run-"]).refused("run-unknown", 2);
    assert!(output.stderr.contains("several runs start with"), "{output:?}");
    for command in ["show", "cancel"] {
        let output = fixture.capstan(&["runs", command, "run-missing"]).refused("run-unknown", 2);
        assert!(output.stderr.contains("capstan runs list"), "{output:?}");
    }
    fixture.capstan(&["runs", "show", ""]).refused("run-unknown", 2);
}

#[test]
fn g10_cancelling_an_ended_run_reports_its_status() {
    let fixture = CliFixture::new();
    let run = run_and_get_id(&fixture, &["one"]);
    let output = fixture.capstan(&["runs", "cancel", &run]).data();
    assert_eq!(output, format!("run {run} has already ended: completed\n"));
    assert_eq!(fixture.capstan(&["runs", "show", &run, "--json"]).json()["status"], "completed");
}

#[test]
fn g10_run_is_cancelled_by_another_process() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("never heard").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let (mut process, run) = start_held_run(&fixture, &barrier);
    let output = fixture.capstan(&["runs", "cancel", &run, "--wait", &u64::MAX.to_string()]);
    if output.code != Some(0) {
        process.kill().unwrap();
    }
    assert_eq!(output.data(), format!("run {run} has ended: cancelled\n"));
    let output = BinaryOutput::from(process.wait_with_output().unwrap());
    output.failed("run-cancelled", 130);
    let shown = fixture.capstan(&["runs", "show", &run, "--json"]).json();
    assert_eq!((&shown["status"], &shown["outcome"]["outcome"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(fixture.outcomes(), (1, 0));
    barrier.release();
}

#[test]
fn g10_cancel_stops_waiting_after_the_given_time() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("never heard").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let (mut process, run) = start_held_run(&fixture, &barrier);
    // The process is alive but stopped.
    send_signal(process.id(), "STOP");
    let output = fixture.capstan(&["runs", "cancel", &run, "--wait", "0"]).data();
    assert_eq!(output, format!("requested cancellation of run {run}\n"));
    fixture.capstan(&["runs", "cancel", &run, "--wait", "1"]).refused("run-still-running", 1);
    let shown = fixture.capstan(&["runs", "show", &run, "--json"]).json();
    assert_eq!((&shown["status"], &shown["cancel_requested"]), (&json!("running"), &json!(true)));
    process.kill().unwrap();
    process.wait().unwrap();
    barrier.release();
}

#[test]
fn g10_cancel_reports_an_orphaned_run() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("never heard").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let (mut process, run) = start_held_run(&fixture, &barrier);
    process.kill().unwrap();
    process.wait().unwrap();
    let lines = fixture.capstan(&["runs", "cancel", &run]).lines();
    assert_eq!(lines[0], format!("run {run} is orphaned: its process is gone"));
    assert_eq!(lines[1], "the next `capstan serve --channel NAME`, or `capstan run` in session cli:local, closes it");
    barrier.release();
}
