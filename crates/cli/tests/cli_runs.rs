//! `capstan runs`: the ledger, and ending what runs.

mod cli_support;

use std::process::Child;

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply, send_signal};
use cli_support::{BinaryOutput, CliFixture, wait_for_gate};
use rusqlite::Connection;
use serde_json::{Value, json};

fn run_and_get_id(place: &CliFixture, arguments: &[&str]) -> String {
    let said = place.capstan(&[&["run", "--json"], arguments].concat());
    let told: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    told["run_id"].as_str().expect("a run").to_owned()
}

fn listed_run_ids(place: &CliFixture, arguments: &[&str]) -> Vec<String> {
    let listed = place.capstan(&[&["runs", "list", "--json"], arguments].concat()).json();
    listed.as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
}

/// A process whose run waits for its model, and the id of that run.
fn start_held_run(place: &CliFixture, gate: &ReplyBarrier) -> (Child, String) {
    let process = place.command(&["run", "first"]).spawn().unwrap();
    wait_for_gate(gate);
    let [run] = listed_run_ids(place, &["--status", "running"]).try_into().expect("one run");
    (process, run)
}

#[test]
fn g10_the_newest_runs_are_listed_first_and_can_be_chosen() {
    let failing = ScriptedReply::status(401, "{\"error\": {\"message\": \"no\"}}");
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one"), failing, ScriptedReply::text("three")]);
    let place = CliFixture::with_model(&server);
    assert_eq!(place.capstan(&["runs", "list"]).data(), "", "nothing ran yet");
    assert!(!place.home().exists());
    let first = run_and_get_id(&place, &["a"]);
    let second = run_and_get_id(&place, &["b"]);
    let third = run_and_get_id(&place, &["c", "--session-id", "other"]);
    assert_eq!(listed_run_ids(&place, &[]), [third.clone(), second.clone(), first.clone()]);
    assert_eq!(listed_run_ids(&place, &["--limit", "2"]), [third.clone(), second.clone()]);
    assert_eq!(listed_run_ids(&place, &["--status", "failed"]), std::slice::from_ref(&second));
    assert_eq!(listed_run_ids(&place, &["--session", "cli:local", "--limit", "1"]), [second]);
    assert_eq!(
        listed_run_ids(&place, &["--session", "cli:local", "--status", "completed"]),
        std::slice::from_ref(&first)
    );
    assert_eq!(listed_run_ids(&place, &["--session", "nobody"]), Vec::<String>::new());
    let lines = place.capstan(&["runs", "list"]).lines();
    assert!(lines[2].starts_with(&first) && lines[2].contains("completed") && lines[2].contains("cli:local"));
    place.capstan(&["runs", "list", "--status", "lost"]).refused("usage", 2);
}

#[test]
fn g10_a_run_is_shown_without_a_look_at_what_became_of_other_sessions() {
    let place = CliFixture::new();
    let run = run_and_get_id(&place, &["hello"]);
    run_and_get_id(&place, &["hello", "--session-id", "other"]);
    // Whoever reads every outcome of the home comes upon this one.
    let database = Connection::open(place.database()).unwrap();
    let damaged = database.execute("UPDATE inbox SET tape = 'no name of a tape' WHERE session = 'other'", []).unwrap();
    assert_eq!(damaged, 1);
    drop(database);
    let shown = place.capstan(&["runs", "show", &run, "--json"]).json();
    assert_eq!((&shown["run_id"], &shown["folded"]), (&json!(run), &json!([])));
}

#[test]
fn g10_a_run_is_shown_with_its_results_in_order() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo one"}))]),
        ScriptedReply::text_with_usage("done", 12, 3),
    ]);
    let place = CliFixture::with_model(&server);
    let run = run_and_get_id(&place, &["go"]);
    // A command calls no model, so nobody reports anything.
    let other = run_and_get_id(&place, &[",help"]);
    let shown = place.capstan(&["runs", "show", &run, "--json"]).json();
    assert_eq!((&shown["run_id"], &shown["status"]), (&json!(run), &json!("completed")));
    assert_eq!(shown["accepted"]["text"], "go");
    assert_eq!(shown["outcome"], json!({"outcome": "replied", "text": "done"}));
    assert_eq!(shown["usage"]["prompt_tokens"], 22, "of both calls");
    assert_eq!(shown["grant"]["tools"], json!({"names": "all", "operations": ["detail", "call"]}));
    assert_eq!(shown["folded"], json!([]));

    let of_run: Vec<Value> = place.entries().into_iter().filter(|entry| entry["meta"]["run_id"] == *run).collect();
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

    let text = place.capstan(&["runs", "show", &run]).data();
    assert!(text.contains("usage     prompt 22, completion 8"), "{text}");
    assert!(text.contains("\ngrant     all of          models, tools, "), "a person need not read JSON: {text}");
    let text = place.capstan(&["runs", "show", &other]).data();
    assert!(text.contains("usage     unknown"), "what was not reported is not zero: {text}");
    assert_eq!(place.capstan(&["runs", "show", &other, "--json"]).json()["usage"], Value::Null);
    place.capstan(&["tape", "reset", "cli:local"]).data();
    assert_eq!(place.capstan(&["runs", "show", &run, "--json"]).json(), shown, "in a generation that has ended too");
}

#[test]
fn g10_the_events_that_were_folded_into_a_run_are_shown_with_it() {
    let place = CliFixture::new();
    let (first, second) = (run_and_get_id(&place, &["one"]), run_and_get_id(&place, &["two"]));
    let folded = json!({"outcome": "folded", "run_id": second}).to_string();
    let database = Connection::open(place.database()).unwrap();
    database.execute("UPDATE outcomes SET outcome = ?1 WHERE run_id = ?2", [&folded, &first]).unwrap();
    let event = place.capstan(&["runs", "show", &first, "--json"]).json()["event"].clone();
    let shown = place.capstan(&["runs", "show", &second, "--json"]).json();
    assert_eq!(shown["folded"].as_array().map(Vec::len), Some(1));
    assert_eq!(shown["folded"][0]["event"], event);
    let text = place.capstan(&["runs", "show", &second]).data();
    assert!(text.contains(&format!("folded    {}", event["event_id"].as_str().unwrap())), "{text}");
}

#[test]
fn g10_the_beginning_of_an_id_is_enough_where_it_is_the_only_one() {
    let place = CliFixture::new();
    let run = run_and_get_id(&place, &["one"]);
    let shown = place.capstan(&["runs", "show", &run[..run.len() - 4], "--json"]).json();
    assert_eq!(shown["run_id"], *run);
    run_and_get_id(&place, &["two"]);
    let said = place.capstan(&["runs", "show", "run-"]).refused("run-unknown", 2);
    assert!(said.stderr.contains("several runs begin with"), "{said:?}");
    for command in ["show", "cancel"] {
        let said = place.capstan(&["runs", command, "run-of-nobody"]).refused("run-unknown", 2);
        assert!(said.stderr.contains("capstan runs list"), "{said:?}");
    }
    place.capstan(&["runs", "show", ""]).refused("run-unknown", 2);
}

#[test]
fn g10_a_run_that_has_ended_cannot_be_cancelled_and_says_so() {
    let place = CliFixture::new();
    let run = run_and_get_id(&place, &["one"]);
    let said = place.capstan(&["runs", "cancel", &run]).data();
    assert_eq!(said, format!("run {run} has ended already: completed\n"));
    assert_eq!(place.capstan(&["runs", "show", &run, "--json"]).json()["status"], "completed");
}

#[test]
fn g10_a_run_ends_when_another_process_cancels_it() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("never heard").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let (mut process, run) = start_held_run(&place, &gate);
    let said = place.capstan(&["runs", "cancel", &run, "--wait", &u64::MAX.to_string()]);
    if said.code != Some(0) {
        process.kill().unwrap();
    }
    assert_eq!(said.data(), format!("run {run} has ended: cancelled\n"));
    let said = BinaryOutput::from(process.wait_with_output().unwrap());
    said.failed("run-cancelled", 130);
    let shown = place.capstan(&["runs", "show", &run, "--json"]).json();
    assert_eq!((&shown["status"], &shown["outcome"]["outcome"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(place.outcomes(), (1, 0));
    gate.release();
}

#[test]
fn g10_a_run_that_does_not_end_is_waited_for_no_longer_than_asked() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("never heard").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let (mut process, run) = start_held_run(&place, &gate);
    // It lives, and does nothing.
    send_signal(process.id(), "STOP");
    let said = place.capstan(&["runs", "cancel", &run, "--wait", "0"]).data();
    assert_eq!(said, format!("run {run} was asked to end\n"));
    place.capstan(&["runs", "cancel", &run, "--wait", "1"]).refused("run-still-running", 1);
    let shown = place.capstan(&["runs", "show", &run, "--json"]).json();
    assert_eq!((&shown["status"], &shown["cancel_requested"]), (&json!("running"), &json!(true)));
    process.kill().unwrap();
    process.wait().unwrap();
    gate.release();
}

#[test]
fn g10_a_run_whose_process_is_dead_is_told_apart() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("never heard").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let (mut process, run) = start_held_run(&place, &gate);
    process.kill().unwrap();
    process.wait().unwrap();
    let lines = place.capstan(&["runs", "cancel", &run]).lines();
    assert_eq!(lines[0], format!("the process of run {run} is gone, and nobody works on it"));
    assert_eq!(lines[1], "the next `capstan serve --channel NAME`, or `capstan run` of session cli:local, closes it");
    gate.release();
}
