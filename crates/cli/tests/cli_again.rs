//! `capstan run --event-id`: the same message again is the same message.

mod cli_support;

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply, send_signal};
use cli_support::{BinaryOutput, CliFixture, entries_of_kind, hold_pipe_reader, make_pipe, wait_for_gate};
use serde_json::json;

/// A message of this id.
fn run_arguments<'a>(id: &'a str, text: &'a str) -> [&'a str; 4] {
    ["run", text, "--event-id", id]
}

#[test]
fn x03_the_same_event_id_again_prints_the_kept_answer_without_a_second_turn() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("once and for all")]);
    let place = CliFixture::with_model(&server);
    let said = place.capstan(&["run", "hello", "--event-id", "e-1", "--json"]).json();
    assert_eq!(said["duplicate"], json!(null), "the first time it is none");
    assert_eq!(place.capstan(&run_arguments("e-1", "hello")).data(), "once and for all\n");
    assert_eq!(
        place.capstan(&run_arguments("e-1", "another text")).data(),
        "once and for all\n",
        "the id says which it is"
    );
    let again = place.capstan(&["run", "hello", "--event-id", "e-1", "--json"]).json();
    assert_eq!((&again["output"], &again["outcome"]), (&json!("once and for all"), &json!("replied")));
    assert_eq!((&again["run_id"], &again["duplicate"]), (&said["run_id"], &json!(true)));
    assert_eq!(again["outbounds"], said["outbounds"]);

    assert_eq!(server.requests().len(), 1);
    assert_eq!(entries_of_kind(&place.entries(), "message").len(), 2);
    assert_eq!(place.outcomes(), (1, 0));
}

#[test]
fn x03_the_event_id_of_another_session_is_refused() {
    let place = CliFixture::new();
    place.capstan(&run_arguments("e-1", "hello")).data();
    place.capstan(&["run", "hello", "--event-id", "e-1", "--session-id", "other"]).refused("event-id-taken", 2);
    assert_eq!(place.outcomes(), (1, 0));
}

#[test]
fn x03_an_event_that_failed_fails_again_with_its_code_and_its_notice() {
    let server =
        ScriptedModel::start_blocking(vec![ScriptedReply::status(401, r#"{"error": {"message": "no such key"}}"#)]);
    let place = CliFixture::with_model(&server);
    place.capstan(&run_arguments("e-1", "hello")).refused("model-unauthorized", 1);
    let again = place.capstan(&run_arguments("e-1", "hello")).refused("model-unauthorized", 1);
    let shown = place.capstan(&["run", "hello", "--event-id", "e-1", "--json"]).failed("model-unauthorized", 1);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!((&shown["outcome"], &shown["duplicate"]), (&json!("failed"), &json!(true)));
    assert_eq!(shown["error"]["code"], "model-unauthorized");
    let notice = shown["outbounds"][0]["content"].as_str().unwrap();
    assert!(again.stderr.contains(notice), "{again:?}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn x03_an_event_that_was_cancelled_is_still_cancelled() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("never heard to its end").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let running = place.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    wait_for_gate(&gate);
    let id = place.capstan(&["runs", "list", "--json"]).json()[0]["run_id"].as_str().unwrap().to_owned();
    place.capstan(&["runs", "cancel", &id]).data();
    BinaryOutput::from(running.wait_with_output().unwrap()).failed("run-cancelled", 130);
    place.capstan(&run_arguments("e-1", "hello")).refused("run-cancelled", 130);
    gate.release();
}

#[test]
fn x02_x03_killed_in_mid_run_and_sent_again_it_is_taken_up_and_answered() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("never heard to its end").with_barrier(&gate),
        ScriptedReply::text("late, but there"),
    ]);
    let place = CliFixture::with_model(&server);
    let mut killed = place.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    wait_for_gate(&gate);
    killed.kill().unwrap();
    assert_eq!(BinaryOutput::from(killed.wait_with_output().unwrap()).code, None, "ended by the signal");

    assert_eq!(place.capstan(&run_arguments("e-1", "hello")).data(), "late, but there\n");
    assert_eq!(place.capstan(&run_arguments("e-1", "hello")).data(), "late, but there\n");
    assert_eq!(server.requests().len(), 2);
    let entries = place.entries();
    let said: Vec<_> = entries_of_kind(&entries, "message").iter().map(|entry| &entry["payload"]["content"]).collect();
    assert_eq!(said, ["hello", "late, but there"]);
    assert_eq!(place.outcomes(), (1, 0));
    place.assert_undamaged();
    gate.release();
}

#[test]
fn x02_x03_one_whose_tool_call_was_cut_off_is_not_tried_again_and_says_so() {
    let place = CliFixture::new();
    let pipe = place.workspace().join("pipe");
    make_pipe(&pipe);
    let mut killed =
        place.command(&run_arguments("e-1", r#"[[tool:bash cmd="echo made >> made; cat pipe"]]"#)).spawn().unwrap();
    let held = hold_pipe_reader(&pipe);
    killed.kill().unwrap();
    killed.wait().unwrap();
    drop(held);

    let again = place.capstan(&run_arguments("e-1", "the same")).refused("run-failed", 1);
    assert!(again.stderr.contains("check"), "{again:?}");
    assert_eq!(std::fs::read_to_string(place.workspace().join("made")).unwrap(), "made\n");
    assert_eq!(place.outcomes(), (1, 0));
}

#[test]
fn x03_sent_again_while_it_runs_both_get_the_answer() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let first = place.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    wait_for_gate(&gate);
    let again = place.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    gate.release();
    assert_eq!(BinaryOutput::from(first.wait_with_output().unwrap()).data(), "one two\n");
    assert_eq!(BinaryOutput::from(again.wait_with_output().unwrap()).data(), "one two\n");
    assert_eq!(server.requests().len(), 1);
}

/// Waits until a process would not be ended by an interrupt.
fn wait_until_sigint_is_caught(process: u32) {
    const SIGINT_MASK: u64 = 1 << 1;
    let heeds = |status: String| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("what it catches");
        u64::from_str_radix(caught.trim(), 16).expect("a mask") & SIGINT_MASK != 0
    };
    while !heeds(std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs")) {
        std::thread::yield_now();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn x03_who_waits_for_another_process_is_let_go_by_the_first_interrupt_and_the_other_goes_on() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let first = place.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    wait_for_gate(&gate);
    let again = place.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    wait_until_sigint_is_caught(again.id());
    send_signal(again.id(), "INT");
    BinaryOutput::from(again.wait_with_output().unwrap()).refused("host-stopping", 130);
    gate.release();
    assert_eq!(BinaryOutput::from(first.wait_with_output().unwrap()).data(), "one two\n");
    assert_eq!(place.capstan(&run_arguments("e-1", "hello")).data(), "one two\n");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_name_that_is_none_is_refused() {
    let place = CliFixture::new();
    let long = "x".repeat(1025);
    for flag in ["--event-id", "--session-id", "--chat-id", "--sender-id"] {
        for name in ["", " ", "a\nb", &long] {
            let said = place.capstan(&["run", "hello", flag, name]).refused("usage", 2);
            assert!(said.stderr.contains(flag), "{said:?}");
        }
    }
    assert!(!place.home().exists());
}
