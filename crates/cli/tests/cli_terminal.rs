//! The binary between a terminal, a disk and whoever wants it to end.

mod cli_support;

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply, send_signal};
use cli_support::{BinaryOutput, CliFixture, TerminalSession, entries_named, entries_of_kind, wait_for_gate};
use serde_json::json;

#[test]
fn x03_a_reply_that_cannot_be_written_is_a_failure_and_stands_on_the_tape() {
    let place = CliFixture::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = place.command(&["run", "hello"]).stdout(full).output().unwrap();
    BinaryOutput::from(output).failed("reply-undelivered", 1);
    let entries = place.entries();
    assert_eq!(entries_of_kind(&entries, "message").len(), 2, "the message and the reply");
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let place = CliFixture::new();
    let mut run = place.command(&["run", "hello"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(run.stdout.take());
    BinaryOutput::from(run.wait_with_output().unwrap()).data();
}

/// Starts the binary through a program that becomes it, such as `nohup`.
fn spawn_via(starter: &[&str], place: &CliFixture, arguments: &[&str]) -> Child {
    let command = place.command(arguments);
    let mut run = Command::new(starter[0]);
    run.args(&starter[1..]).arg(command.get_program()).args(arguments).current_dir(place.workspace()).env_clear();
    run.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn x01_a_run_that_is_told_to_end_keeps_what_was_said_and_has_an_outcome() {
    for signal in ["INT", "TERM", "HUP"] {
        let gate = ReplyBarrier::new();
        let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two three").with_barrier(&gate)]);
        let place = CliFixture::with_model(&server);
        // Whoever runs the tests may ignore a signal, and would pass that on.
        let run = spawn_via(&["env", "--default-signal"], &place, &["run", "hello"]);
        wait_for_gate(&gate);
        send_signal(run.id(), signal);
        BinaryOutput::from(run.wait_with_output().unwrap()).failed("run-cancelled", 130);
        assert_eq!(place.outcomes(), (1, 0), "accepted and settled, after {signal}");
        place.assert_undamaged();
    }
}

#[test]
fn a_run_that_was_started_to_outlive_its_terminal_does() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two three").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let run = spawn_via(&["nohup"], &place, &["run", "hello"]);
    wait_for_gate(&gate);
    send_signal(run.id(), "HUP");
    gate.release();
    assert_eq!(BinaryOutput::from(run.wait_with_output().unwrap()).succeeded().stdout, "one two three\n");
}

#[test]
fn a03_a_command_that_is_cancelled_is_recorded_as_such_and_what_it_ran_is_ended() {
    let place = CliFixture::new();
    let begun = place.path("begun");
    let line = format!(",echo $$ > {begun}; exec sleep 1000");
    let mut command = place.command(&["run", &line]);
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process = loop {
        match std::fs::read_to_string(&begun) {
            Ok(process) if process.ends_with('\n') => break process.trim().to_owned(),
            _ => std::thread::yield_now(),
        }
    };
    send_signal(run.id(), "INT");
    BinaryOutput::from(run.wait_with_output().unwrap()).failed("run-cancelled", 130);
    let entries = place.entries();
    assert_eq!(entries_named(&entries, "command")[0]["payload"]["data"]["status"], "cancelled");
    let left = std::path::Path::new("/proc").join(process).join("cmdline");
    assert!(std::fs::read(left).unwrap_or_default().is_empty(), "the process is gone, or was killed");
}

#[test]
fn a_home_is_nobody_elses_business() {
    let place = CliFixture::new();
    place.capstan(&["run", "hello"]).data();
    let mode = std::fs::metadata(place.home()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn looking_at_tapes_where_there_are_none_writes_nothing() {
    let place = CliFixture::new();
    assert_eq!(place.capstan(&["tape", "list"]).data(), "");
    place.capstan(&["tape", "show", "cli:local"]).refused("tape-unknown", 2);
    assert!(!place.home().exists());
}

#[test]
fn what_stands_on_a_tape_cannot_drive_a_terminal() {
    let place = CliFixture::new();
    let line =
        r#"{"id":1,"kind":"ev\u001b[31ment","payload":{"a":"\u001b]0;owned\u0007\n"},"meta":{},"date":"\u001b[2J"}"#;
    let file = place.file("foreign.jsonl", format!("{line}\n"));
    let shown = place.capstan(&["tape", "show", &file]).data();
    assert!(!shown.trim_end_matches('\n').contains(|character: char| character.is_control()), "{shown:?}");
    assert!(place.capstan(&["tape", "export", &file]).data().contains("\\u001b"), "an export is data");
}

#[test]
fn p12_a_tape_store_that_lost_entries_is_reported_and_not_written_over() {
    let place = CliFixture::new().config("tape_store = 'jsonl'\n");
    place.capstan(&["run", "hello"]).data();
    let folder = place.home().join("tapes");
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    let half: String = text.split_inclusive('\n').take(5).collect();
    std::fs::write(&file, &half).unwrap();
    let told = place.capstan(&["tape", "verify"]).failed("tape-damaged", 4);
    assert!(told.stderr.contains("has entries up to 5"), "{told:?}");
    place.capstan(&["run", "again"]).refused("store-corrupt", 4);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), half);
}

#[test]
fn p12_a_whole_last_line_that_is_no_entry_is_damage_and_not_torn() {
    let place = CliFixture::new();
    for text in ["this is no tape\n", "42\n", "{\"id\":\"one\"}\n"] {
        let file = place.file("t.jsonl", text);
        place.capstan(&["tape", "import", &file]).refused("tape-damaged", 2);
    }
    let empty = place.file("t.jsonl", "");
    place.capstan(&["tape", "import", &empty]).refused("tape-file-unreadable", 2);
}

#[test]
fn a04_a_handoff_the_demo_model_asks_for_is_made_once() {
    let place = CliFixture::new();
    place.capstan(&["run", "[[tool:tape.handoff name=z summary=q]]"]).succeeded();
    assert_eq!(entries_of_kind(&place.entries(), "anchor").len(), 2, "session/start and the one it asked for");
}

#[test]
fn a_session_may_be_named_like_a_path() {
    let place = CliFixture::new();
    place.capstan(&["run", "--session-id", "a/b.jsonl", "hello"]).data();
    assert!(!place.capstan(&["tape", "show", "a/b.jsonl"]).data().is_empty());
}

#[test]
fn c01_what_a_provider_says_in_an_error_cannot_drive_a_terminal() {
    let refusal = json!({"error": {"message": "\u{1b}]0;owned\u{7}\u{1b}[2Jno such \u{9b}31mthing\u{202e}"}});
    let refusing = || ScriptedReply::status(400, refusal.to_string());
    let server = ScriptedModel::start_blocking(vec![refusing(), refusing()]);
    let place = CliFixture::with_model(&server);
    let run = place.capstan(&["run", "hello"]).refused("model-rejected", 1);
    let base = server.base_url();
    let onboard = ["onboard", "--model", "openai:scripted", "--api-base", &base, "--api-key-stdin"];
    let onboard =
        CliFixture::new().capstan_with_input(&onboard, b"sk-a-key-of-some-length").failed("model-rejected", 1);
    for said in [run, onboard] {
        assert!(said.stderr.contains(": no such thing\n"), "{said:?}");
        let drives = |character: char| character != '\n' && (character.is_control() || character == '\u{202e}');
        assert!(!said.stderr.contains(drives), "{said:?}");
    }
}

#[test]
fn a04_a_call_is_told_in_short_however_much_it_brings() {
    let content = "a long story ".repeat(20_000);
    let call = ScriptedReply::tool_calls([("call_1", "fs_write", json!({"content": content, "path": "story.txt"}))]);
    let server = ScriptedModel::start_blocking(vec![call, ScriptedReply::text("written")]);
    let place = CliFixture::with_model(&server);
    let said = place.capstan(&["run", "write"]).succeeded();
    let told: String = said.stderr.chars().take(500).collect();
    assert!(told.starts_with("> fs_write content=a long story") && told.ends_with("… path=story.txt\n"), "{told}");
    assert_eq!(std::fs::read_to_string(place.workspace().join("story.txt")).unwrap().len(), content.len());
}

/// The lines of a screen in which this stands.
fn lines_containing<'a>(screen: &'a str, text: &str) -> Vec<&'a str> {
    screen.lines().filter(|line| line.contains(text)).collect()
}

#[test]
fn c01_an_error_has_a_line_of_its_own_where_a_person_sees_it_beside_the_reply() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("half an answer").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server).set("CAPSTAN_RUN_TIMEOUT_SECONDS", "3");
    let screen = TerminalSession::open(&place.command(&["run", "hello"]), 200, 24);
    screen.wait_for("half");
    let seen = screen.wait_for("hint: ");
    assert!(lines_containing(&seen, "error[run-timeout]").iter().all(|line| line.starts_with("error[")), "{seen}");
    assert!(!seen.trim_end().contains("\n\n"), "and no line is empty: {seen}");
    assert_eq!(screen.wait_for_exit(), Some(1));
    gate.release();
}

#[test]
fn c01_a_log_line_has_a_line_of_its_own_where_a_person_sees_it_beside_the_reply() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("this is cut by").truncated()]);
    let place = CliFixture::with_model(&server);
    let screen = TerminalSession::open(&place.command(&["run", "hello"]), 200, 24);
    let seen = screen.wait_for(" WARN ");
    assert_eq!(lines_containing(&seen, "this is cut by"), ["this is cut by"], "{seen}");
    assert_eq!(screen.wait_for_exit(), Some(0));
}
