//! `capstan run --event-id`: idempotent submission of messages.

use crate::support::{
    BinaryOutput, CliFixture, doctor_report, entries_of_kind, find_check, hold_pipe_reader, make_pipe, wait_for_barrier,
};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply, send_signal};
use serde_json::json;

/// Arguments of a run with this event id.
fn run_arguments<'a>(id: &'a str, text: &'a str) -> [&'a str; 4] {
    ["run", text, "--event-id", id]
}

#[test]
fn x03_repeated_event_id_prints_the_stored_reply_without_a_second_turn() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("the only reply")]);
    let fixture = CliFixture::with_model(&server);
    let output = fixture.capstan(&["run", "hello", "--event-id", "e-1", "--json"]).json();
    assert_eq!(output["duplicate"], json!(null), "the first is no duplicate");
    assert_eq!(fixture.capstan(&run_arguments("e-1", "hello")).data(), "the only reply\n");
    assert_eq!(
        fixture.capstan(&run_arguments("e-1", "another text")).data(),
        "the only reply\n",
        "the id identifies the event"
    );
    let again = fixture.capstan(&["run", "hello", "--event-id", "e-1", "--json"]).json();
    assert_eq!((&again["output"], &again["outcome"]), (&json!("the only reply"), &json!("replied")));
    assert_eq!((&again["run_id"], &again["duplicate"]), (&output["run_id"], &json!(true)));
    assert_eq!(again["outbounds"], output["outbounds"]);

    assert_eq!(server.requests().len(), 1);
    assert_eq!(entries_of_kind(&fixture.entries(), "message").len(), 2);
    assert_eq!(fixture.outcomes(), (1, 0));
}

#[test]
fn x03_event_id_of_another_session_is_rejected() {
    let fixture = CliFixture::new();
    fixture.capstan(&run_arguments("e-1", "hello")).data();
    fixture.capstan(&["run", "hello", "--event-id", "e-1", "--session-id", "other"]).refused("event-id-taken", 2);
    assert_eq!(fixture.outcomes(), (1, 0));
}

#[test]
fn x03_event_id_of_a_moved_workspace_is_rejected_as_one_of_another_workspace() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("never received").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let mut killed = fixture.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    wait_for_barrier(&barrier);
    killed.kill().unwrap();
    killed.wait().unwrap();
    std::fs::create_dir(fixture.path("moved")).unwrap();
    let mut command = fixture.command(&run_arguments("e-1", "hello"));
    let refused = BinaryOutput::from(command.current_dir(fixture.path("moved")).output().unwrap());
    let refused = refused.refused("event-id-taken", 2);
    assert!(refused.stderr.contains("of another workspace of this home"), "{}", refused.stderr);
    let report = doctor_report(&fixture, 0);
    let hint = find_check(&report, "in-flight")["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains(fixture.workspace().to_str().unwrap()), "{hint}");
    barrier.release();
}

#[test]
fn x03_repeated_failed_event_fails_again_with_its_code_and_notice() {
    let server =
        ScriptedModel::start_blocking(vec![ScriptedReply::status(401, r#"{"error": {"message": "no such key"}}"#)]);
    let fixture = CliFixture::with_model(&server);
    fixture.capstan(&run_arguments("e-1", "hello")).refused("model-unauthorized", 1);
    let again = fixture.capstan(&run_arguments("e-1", "hello")).refused("model-unauthorized", 1);
    let shown = fixture.capstan(&["run", "hello", "--event-id", "e-1", "--json"]).failed("model-unauthorized", 1);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!((&shown["outcome"], &shown["duplicate"]), (&json!("failed"), &json!(true)));
    assert_eq!(shown["error"]["code"], "model-unauthorized");
    let notice = shown["outbounds"][0]["content"].as_str().unwrap();
    assert!(again.stderr.contains(notice), "{again:?}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn x03_repeated_cancelled_event_is_still_cancelled() {
    let barrier = ReplyBarrier::new();
    let server =
        ScriptedModel::start_blocking(vec![ScriptedReply::text("never received completely").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let running = fixture.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    wait_for_barrier(&barrier);
    let id = fixture.capstan(&["runs", "list", "--json"]).json()[0]["run_id"].as_str().unwrap().to_owned();
    fixture.capstan(&["runs", "cancel", &id]).data();
    BinaryOutput::from(running.wait_with_output().unwrap()).failed("run-cancelled", 130);
    fixture.capstan(&run_arguments("e-1", "hello")).refused("run-cancelled", 130);
    barrier.release();
}

#[test]
fn x02_x03_event_of_a_killed_process_is_recovered_when_sent_again() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("never received completely").with_barrier(&barrier),
        ScriptedReply::text("a late reply"),
    ]);
    let fixture = CliFixture::with_model(&server);
    let mut killed = fixture.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    wait_for_barrier(&barrier);
    killed.kill().unwrap();
    assert_eq!(BinaryOutput::from(killed.wait_with_output().unwrap()).code, None, "ended by the signal");

    assert_eq!(fixture.capstan(&run_arguments("e-1", "hello")).data(), "a late reply\n");
    assert_eq!(fixture.capstan(&run_arguments("e-1", "hello")).data(), "a late reply\n");
    assert_eq!(server.requests().len(), 2);
    let entries = fixture.entries();
    let output: Vec<_> =
        entries_of_kind(&entries, "message").iter().map(|entry| &entry["payload"]["content"]).collect();
    assert_eq!(output, ["hello", "a late reply"]);
    assert_eq!(fixture.outcomes(), (1, 0));
    fixture.assert_undamaged();
    barrier.release();
}

#[test]
fn x02_x03_event_with_an_interrupted_tool_call_is_not_retried() {
    let fixture = CliFixture::new();
    let pipe = fixture.workspace().join("pipe");
    make_pipe(&pipe);
    let mut killed =
        fixture.command(&run_arguments("e-1", r#"[[tool:bash cmd="echo made >> made; cat pipe"]]"#)).spawn().unwrap();
    let pipe_writer = hold_pipe_reader(&pipe);
    killed.kill().unwrap();
    killed.wait().unwrap();
    drop(pipe_writer);

    let again = fixture.capstan(&run_arguments("e-1", "the same")).refused("run-failed", 1);
    assert!(again.stderr.contains("check"), "{again:?}");
    assert_eq!(std::fs::read_to_string(fixture.workspace().join("made")).unwrap(), "made\n");
    assert_eq!(fixture.outcomes(), (1, 0));
}

#[test]
fn x03_event_sent_again_during_its_run_gets_the_same_reply() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let first = fixture.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    wait_for_barrier(&barrier);
    let again = fixture.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    barrier.release();
    assert_eq!(BinaryOutput::from(first.wait_with_output().unwrap()).data(), "one two\n");
    assert_eq!(BinaryOutput::from(again.wait_with_output().unwrap()).data(), "one two\n");
    assert_eq!(server.requests().len(), 1);
}

/// Waits until a process handles SIGINT.
fn wait_until_sigint_is_caught(process: u32) {
    const SIGINT_MASK: u64 = 1 << 1;
    let catches_sigint = |status: String| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("the signal mask");
        u64::from_str_radix(caught.trim(), 16).expect("a mask") & SIGINT_MASK != 0
    };
    while !catches_sigint(std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs")) {
        std::thread::yield_now();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn x03_signal_ends_a_duplicate_without_affecting_the_run_it_waits_for() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let first = fixture.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    wait_for_barrier(&barrier);
    let again = fixture.command(&run_arguments("e-1", "hello")).spawn().unwrap();
    wait_until_sigint_is_caught(again.id());
    send_signal(again.id(), "INT");
    BinaryOutput::from(again.wait_with_output().unwrap()).refused("host-stopping", 130);
    barrier.release();
    assert_eq!(BinaryOutput::from(first.wait_with_output().unwrap()).data(), "one two\n");
    assert_eq!(fixture.capstan(&run_arguments("e-1", "hello")).data(), "one two\n");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn invalid_names_are_rejected() {
    let fixture = CliFixture::new();
    let long = "x".repeat(1025);
    for flag in ["--event-id", "--session-id", "--chat-id", "--sender-id"] {
        for name in ["", " ", "a\nb", &long] {
            let output = fixture.capstan(&["run", "hello", flag, name]).refused("usage", 2);
            assert!(output.stderr.contains(flag), "{output:?}");
        }
    }
    assert!(!fixture.home().exists());
}
