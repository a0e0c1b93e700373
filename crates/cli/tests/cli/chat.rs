//! `capstan chat` at a real terminal.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    BinaryOutput, CTRL_C, CTRL_D, CliFixture, ENTER, TerminalSession, entries_of_kind, wait_for_barrier,
};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply, send_signal};
use serde_json::json;

fn open_chat(fixture: &CliFixture, arguments: &[&str]) -> TerminalSession {
    let all: Vec<&str> = ["chat"].into_iter().chain(arguments.iter().copied()).collect();
    TerminalSession::open(&fixture.command(&all), 60, 20)
}

/// Rows of a screen without trailing blanks.
fn screen_rows(screen: &str) -> Vec<&str> {
    screen.trim_end().lines().map(str::trim_end).collect()
}

#[test]
fn t07_reply_is_shown_while_the_model_streams_it() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("One **two** three.").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let screen = open_chat(&fixture, &[]);
    screen.say("hello");
    let while_it_comes = screen.wait_for("ctrl-c cancels");
    assert!(!while_it_comes.contains("three"), "{while_it_comes}");
    screen.wait("the first word", |screen| screen_rows(screen).contains(&"One"));
    barrier.release();
    let finished = screen.wait_for("10 in · 5 out");
    assert!(finished.contains("› hello\n\nOne two three.\n\n10 in · 5 out"), "{finished}");
    screen.send(CTRL_D);
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(fixture.outcomes(), (1, 0));
}

#[test]
fn a04_tool_call_is_one_line_and_its_output_is_shown_on_request() {
    let calls = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "seq 1 9"}))]).with_text("Let me count.");
    let server = ScriptedModel::start_blocking(vec![calls, ScriptedReply::text("Nine.")]);
    let fixture = CliFixture::with_model(&server);
    let screen = open_chat(&fixture, &[]);
    screen.say("count");
    let seen = screen.wait_for("Nine.");
    assert!(seen.contains("● bash  seq 1 9  "), "{seen}");
    assert!(seen.contains("  1\n  2\n  3\n  … 6 more lines (,show 1)"), "{seen}");
    screen.say(",show");
    screen.wait_for("  8\n  9");
    screen.say(",show 7");
    screen.wait_for("there is no output 7");
    screen.say(",quit");
    assert_eq!(screen.wait_for_exit(), Some(0));
}

#[test]
fn c01_ctrl_c_cancels_the_run_and_a_second_one_quits() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("One two three.").with_barrier(&barrier),
        ScriptedReply::text("Again."),
    ]);
    let fixture = CliFixture::with_model(&server);
    let screen = open_chat(&fixture, &[]);
    screen.say("hello");
    screen.wait("the first word", |screen| screen_rows(screen).contains(&"One"));
    screen.send(CTRL_C);
    let cancelled = screen.wait_for("■ cancelled");
    assert!(!cancelled.contains("Sorry"), "a cancellation is not an error: {cancelled}");
    screen.say("go on");
    screen.wait_for("Again.");
    screen.wait("the end of the turn", |screen| !screen.contains("ctrl-c cancels"));
    screen.send(CTRL_C);
    screen.wait_for("ctrl-c again quits");
    screen.send(CTRL_C);
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(fixture.outcomes(), (2, 0));
    fixture.assert_undamaged();
}

#[test]
fn x01_quitting_during_a_run_cancels_and_records_it() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("One two three.").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let screen = open_chat(&fixture, &[]);
    screen.say("hello");
    screen.wait("the first word", |screen| screen_rows(screen).contains(&"One"));
    screen.send(CTRL_D);
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(fixture.outcomes(), (1, 0));
}

#[test]
fn x01_chat_ends_with_its_terminal_even_if_sighup_is_ignored() {
    let fixture = CliFixture::new();
    let chat = fixture.command(&["chat"]);
    let mut script = Command::new("script");
    script.args(["-qfc", "trap '' HUP; \"$PROGRAM\" chat; touch ended", "/dev/null"]).current_dir(fixture.workspace());
    script.env_clear().envs(chat.get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.env("PROGRAM", chat.get_program()).env("TERM", "xterm");
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut output, mut seen) = (script.stdout.take().unwrap(), Vec::new());
    while !String::from_utf8_lossy(&seen).contains('›') {
        let mut bytes = [0; 512];
        let count = output.read(&mut bytes).unwrap();
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&bytes[..count]);
    }
    script.kill().unwrap();
    script.wait().unwrap();
    let last = Instant::now() + Duration::from_mins(2);
    while !fixture.workspace().join("ended").exists() {
        assert!(Instant::now() < last, "it is still running");
        std::thread::yield_now();
    }
}

#[test]
fn a09_message_typed_during_a_run_steers_it() {
    let barrier = ReplyBarrier::new();
    let first = ScriptedReply::text("First answer.").with_barrier(&barrier);
    let server = ScriptedModel::start_blocking(vec![first, ScriptedReply::text("Second answer.")]);
    let fixture = CliFixture::with_model(&server);
    let screen = open_chat(&fixture, &[]);
    screen.say("begin");
    screen.wait("the first word", |screen| screen_rows(screen).contains(&"First"));
    screen.say("this too");
    screen.wait_for("steers the current run");
    screen.send("half writ");
    screen.wait_for("› half writ");
    barrier.release();
    let seen = screen.wait_for("Second answer.");
    assert!(seen.contains("First answer.\n\nSecond answer."), "{seen}");
    screen.wait("what was being written is still there", |screen| {
        !screen.contains("ctrl-c cancels") && screen.contains("› half writ")
    });
    screen.send(CTRL_C);
    screen.send(CTRL_D);
    assert_eq!(screen.wait_for_exit(), Some(0));
    let messages = &server.requests()[1]["messages"];
    assert!(messages.to_string().contains("this too"), "{messages}");
    assert_eq!(fixture.outcomes(), (2, 0));
}

#[test]
fn c01_narrow_and_resized_windows_are_drawn_correctly() {
    let fixture = CliFixture::new();
    let screen = TerminalSession::open(&fixture.command(&["chat"]), 20, 12);
    screen.say("several words that need rows, 你好世界你好世界");
    let narrow = screen.wait("the reply", |screen| screen.contains(" out ·") && screen.contains("You said: several"));
    assert!(screen_rows(&narrow).contains(&"You said: several"), "{narrow}");
    screen.resize(60, 12);
    screen.say(",echo wide enough for one row of this window");
    screen.wait("a row that would not have fitted before", |screen| {
        screen_rows(screen).contains(&"wide enough for one row of this window")
    });
    screen.send(CTRL_D);
    assert_eq!(screen.wait_for_exit(), Some(0));
}

#[test]
fn c01_burst_of_keys_is_read_completely() {
    let fixture = CliFixture::new();
    let screen = open_chat(&fixture, &[]);
    screen.wait_for("›");
    // More than one read of the terminal, and not marked as pasted.
    screen.send(&format!("{}{ENTER}", "many words ".repeat(200)));
    screen.wait_for(" out · ");
    screen.send(CTRL_D);
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(fixture.outcomes(), (1, 0));
}

#[test]
fn c01_ctrl_z_suspends_the_chat_and_fg_resumes_it() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("One two three.").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server).set("PS1", "$ ");
    let chat = fixture.command(&["chat"]);
    let mut shell = Command::new("bash");
    shell.args(["--norc", "--noediting", "-i"]).current_dir(fixture.workspace());
    shell.envs(chat.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let screen = TerminalSession::open(&shell, 80, 24);
    screen.wait_for("$ ");
    screen.send(&format!("{} chat{ENTER}", chat.get_program().display()));
    screen.say("hello");
    screen.wait("the first word", |screen| screen_rows(screen).contains(&"One"));
    screen.send("half writ");
    screen.wait_for("› half writ");
    for _ in 0..2 {
        screen.send("\u{1a}");
        screen.wait_for("Stopped");
        // In the background the chat must not touch the terminal. The shell waits until it has stopped again.
        screen.send(&format!("bg; wait %1{ENTER}"));
        screen.wait("it stands still again", |screen| screen.matches("Stopped").count() == 2);
        screen.send(&format!("clear; stty -a | grep -ow -e -icanon -e icanon{ENTER}"));
        screen.wait("a terminal as shells have it", |screen| screen_rows(screen).contains(&"icanon"));
        screen.send(&format!("clear; fg{ENTER}"));
        let back = screen.wait("the chat as it was", |screen| screen_rows(screen).contains(&"› half writ"));
        assert_eq!((back.matches("One").count(), back.matches("ctrl-c cancels").count()), (1, 1), "{back}");
    }
    barrier.release();
    screen.wait_for("One two three.");
    screen.wait("the end of the turn", |screen| !screen.contains("ctrl-c cancels"));
    screen.send(CTRL_C);
    screen.send(CTRL_D);
    screen.wait_for("$ ");
    screen.send(&format!("exit{ENTER}"));
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(fixture.outcomes(), (1, 0));
}

#[test]
fn c01_no_color_option_disables_colors() {
    let has_colours = |raw: &str| {
        raw.split("\u{1b}[").skip(1).any(|rest| {
            rest.trim_start_matches(|character: char| character.is_ascii_digit() || character == ';').starts_with('m')
        })
    };
    for (arguments, variable, expected) in
        [(vec![], None, true), (vec!["--no-color"], None, false), (vec![], Some(("NO_COLOR", "1")), false)]
    {
        let fixture = match variable {
            Some((name, value)) => CliFixture::new().set(name, value),
            None => CliFixture::new(),
        };
        let screen = open_chat(&fixture, &arguments);
        screen.say("**hello**");
        let seen = screen.wait_for(" out · ");
        assert_eq!(seen.contains("You said: **hello**"), !expected, "without colors the markers are shown: {seen}");
        assert_eq!(has_colours(&screen.raw()), expected, "{arguments:?} {variable:?}");
        screen.send(CTRL_D);
        assert_eq!(screen.wait_for_exit(), Some(0));
    }
}

#[test]
fn c01_escape_sequences_of_models_and_tools_are_stripped() {
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2Jplain\u{1b}[31m words";
    let calls =
        ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "printf '\\033]0;owned\\007\\033[2Jgiven'"}))]);
    let server = ScriptedModel::start_blocking(vec![calls, ScriptedReply::text(evil)]);
    let fixture = CliFixture::with_model(&server);
    let screen = open_chat(&fixture, &["--no-color"]);
    screen.say("hello");
    screen.wait_for("plain words");
    screen.wait_for("given");
    screen.send(CTRL_D);
    let raw = screen.raw();
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert!(!raw.contains("owned") || !raw.contains("\u{1b}]0;"), "{raw:?}");
    assert!(!raw.contains("\u{1b}[2J") && !raw.contains("\u{1b}[31m"), "{raw:?}");
}

#[test]
fn c01_pasted_lines_are_one_message_and_edited_lines_are_sent_as_shown() {
    let fixture = CliFixture::new();
    let screen = open_chat(&fixture, &[]);
    screen.wait_for("›");
    screen.send("\u{1b}[200~one\r\ntwo\u{1b}[201~");
    screen.wait_for("two");
    screen.send("\u{1b}[D\u{1b}[D\u{1b}[Dx");
    screen.send(ENTER);
    screen.wait("the reply", |screen| screen.contains("You said: one\nxtwo"));
    screen.send(CTRL_D);
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(fixture.outcomes(), (1, 0));
}

#[test]
fn c01_history_is_recalled_and_commands_are_completed() {
    let fixture = CliFixture::new();
    let screen = open_chat(&fixture, &[]);
    screen.say("remember me");
    screen.wait_for(" out · ");
    screen.send(CTRL_D);
    assert_eq!(screen.wait_for_exit(), Some(0));
    let history = fixture.home().join("chat_history");
    assert_eq!(std::fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
    let screen = open_chat(&fixture, &[]);
    screen.wait_for("›");
    screen.send("\u{1b}[A");
    screen.wait_for("› remember me");
    screen.send(CTRL_C);
    screen.send(",tape.in\t");
    screen.wait_for("› ,tape.info");
    screen.send(ENTER);
    screen.wait_for("last anchor: session/start");
    screen.say(",help");
    screen.wait("what can be done here, and the tools", |screen| {
        screen.contains("Lists the tools and how to call them.")
    });
    assert!(screen.raw().contains(",show [NUMBER]"), "{}", screen.raw());
    screen.send(CTRL_D);
    assert_eq!(screen.wait_for_exit(), Some(0));
}

#[test]
fn x02_next_chat_recovers_and_shows_the_event_of_a_killed_one() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("One two three.").with_barrier(&barrier),
        ScriptedReply::text("Here it is."),
    ]);
    let fixture = CliFixture::with_model(&server);
    let screen = open_chat(&fixture, &[]);
    screen.say("do not lose this");
    screen.wait("the first word", |screen| screen_rows(screen).contains(&"One"));
    screen.kill();
    assert_eq!(fixture.outcomes(), (0, 1));
    let screen = open_chat(&fixture, &[]);
    let seen = screen.wait_for("Here it is.");
    assert!(seen.contains("resumed after an interruption:\n› do not lose this"), "{seen}");
    screen.wait("the end of the turn", |screen| !screen.contains("ctrl-c cancels"));
    screen.send(CTRL_D);
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(fixture.outcomes(), (1, 0));
    fixture.assert_undamaged();
}

#[test]
fn x02_next_chat_of_a_script_recovers_and_shows_the_event_of_a_killed_one() {
    for next in ["", "next\n"] {
        let barrier = ReplyBarrier::new();
        let server = ScriptedModel::start_blocking(vec![
            ScriptedReply::text("One two three.").with_barrier(&barrier),
            ScriptedReply::text("Here it is."),
            ScriptedReply::text("Next one."),
        ]);
        let fixture = CliFixture::with_model(&server);
        let mut command = fixture.command(&["chat", "--session-id", "lm"]);
        let mut chat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        chat.stdin.as_mut().unwrap().write_all(b"do not lose this\n").unwrap();
        wait_for_barrier(&barrier);
        chat.kill().unwrap();
        chat.wait().unwrap();
        assert_eq!(fixture.outcomes(), (0, 1));

        let output = fixture.capstan_with_input(&["chat", "--session-id", "lm"], next.as_bytes()).succeeded();
        let expected = if next.is_empty() { "Here it is.\n" } else { "Here it is.\nNext one.\n" };
        assert_eq!(output.stdout, expected, "{output:?}");
        assert!(output.stderr.contains("resumed after an interruption: do not lose this\n"), "{output:?}");
        assert_eq!(fixture.outcomes().1, 0);
        assert_eq!(fixture.capstan(&["outbox", "list", "--json"]).json(), json!([]));
        fixture.assert_undamaged();
    }
}

#[test]
fn t11_failure_is_shown_with_its_hint_and_the_chat_continues() {
    let refused = ScriptedReply::status(401, r#"{"error": {"message": "no such key"}}"#);
    let server = ScriptedModel::start_blocking(vec![refused, ScriptedReply::text("Now it works.")]);
    let fixture = CliFixture::with_model(&server);
    let screen = TerminalSession::open(&fixture.command(&["chat"]), 100, 20);
    screen.say("hello");
    let seen = screen.wait_for("hint: set a key that the provider accepts");
    assert!(seen.contains("✗ Sorry, something went wrong"), "{seen}");
    screen.say("again");
    screen.wait_for("Now it works.");
    screen.send(CTRL_D);
    assert_eq!(screen.wait_for_exit(), Some(0));
}

#[test]
fn c01_dumb_terminal_gets_a_chat_line_by_line() {
    let fixture = CliFixture::new().set("TERM", "dumb");
    let screen = open_chat(&fixture, &[]);
    screen.wait_for("> ");
    screen.send("hello\r");
    screen.wait_for("You said: hello");
    screen.send(CTRL_D);
    let raw = screen.raw();
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert!(!raw.contains('\u{1b}'), "{raw:?}");
}

#[test]
fn c01_ctrl_c_at_a_dumb_terminal_cancels_the_run_and_the_chat_continues() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("One two three.").with_barrier(&barrier),
        ScriptedReply::text("Again."),
    ]);
    let fixture = CliFixture::with_model(&server).set("TERM", "dumb");
    let screen = open_chat(&fixture, &[]);
    let has_prompt = |screen: &str| screen_rows(screen).last() == Some(&">");
    screen.wait("a prompt", has_prompt);
    screen.send("hello\r");
    screen.wait_for("One");
    screen.send(CTRL_C);
    let cancelled = screen.wait("a prompt on a line of its own", has_prompt);
    assert!(cancelled.contains("error[run-cancelled]"), "before the next message is typed: {cancelled}");
    screen.send("next\r");
    screen.wait("the reply and a prompt", |screen| screen.contains("Again.") && has_prompt(screen));
    assert_eq!(screen.raw().matches("Again.").count(), 1, "{:?}", screen.raw());
    screen.send(CTRL_C);
    assert_eq!(screen.wait_for_exit(), Some(0), "without a run ctrl-c leaves");
    assert_eq!(fixture.outcomes(), (2, 0));
}

#[test]
fn x01_signal_without_a_run_ends_the_chat_without_an_error() {
    let fixture = CliFixture::new();
    let screen = open_chat(&fixture, &[]);
    screen.wait("a prompt", |screen| screen.lines().any(|line| line.starts_with('›')));
    send_signal(screen.id(), "TERM");
    assert_eq!(screen.wait_for_exit(), Some(0));
}

#[test]
fn x01_interrupted_chat_of_a_script_does_not_report_a_cancelled_run() {
    let fixture = CliFixture::new();
    let mut command = fixture.command(&["chat"]);
    let mut chat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    chat.stdin.as_mut().unwrap().write_all(b",echo ready\n").unwrap();
    let mut reply = [0; 6];
    chat.stdout.as_mut().unwrap().read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"ready\n");
    while fixture.outcomes() != (1, 0) {
        std::thread::yield_now();
    }
    send_signal(chat.id(), "INT");
    let stdin = chat.stdin.take();
    let output = BinaryOutput::from(chat.wait_with_output().unwrap()).failed("host-stopping", 130);
    drop(stdin);
    assert!(!output.stderr.contains("run was cancelled"), "{output:?}");
}

#[test]
fn c01_run_cancelled_by_another_process_does_not_end_the_chat_of_a_script() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("One two three.").with_barrier(&barrier),
        ScriptedReply::text("Again."),
    ]);
    let fixture = CliFixture::with_model(&server);
    let mut command = fixture.command(&["chat"]);
    let mut chat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    chat.stdin.take().unwrap().write_all(b"hello\nnext\n").unwrap();
    wait_for_barrier(&barrier);
    let run = fixture.capstan(&["runs", "list", "--json"]).json()[0]["run_id"].as_str().unwrap().to_owned();
    fixture.capstan(&["runs", "cancel", &run]).succeeded();
    let output = BinaryOutput::from(chat.wait_with_output().unwrap()).failed("run-cancelled", 130);
    assert_eq!(output.stdout, "One \nAgain.\n", "{output:?}");
    assert!(output.stderr.contains("1 of 2 messages failed"), "{output:?}");
    assert_eq!(fixture.outcomes(), (2, 0));
}

#[test]
fn c01_each_line_of_a_pipe_is_a_message_with_a_plain_text_reply() {
    let fixture = CliFixture::new();
    let output = fixture.capstan_with_input(&["chat"], b"hello\n\n,echo a command\r\nlast");
    let stdout = output.data();
    assert!(stdout.ends_with("You said: hello\na command\nYou said: last\n"), "{stdout}");
    assert_eq!(fixture.outcomes(), (3, 0), "a blank line is no message");
    let session = fixture.capstan_with_input(&["chat", "--session-id", "other"], b"one\n,quit\ntwo\n").data();
    assert!(session.contains("You said: one") && !session.contains("two"), "{session}");
    assert_eq!(entries_of_kind(&fixture.tape("other"), "message").len(), 2);
}

#[test]
fn c01_failed_message_of_a_pipe_fails_the_command_after_the_rest_is_served() {
    let refused = || ScriptedReply::status(401, r#"{"error": {"message": "no such key"}}"#);
    let server = ScriptedModel::start_blocking(vec![refused(), ScriptedReply::text("ok"), refused()]);
    let fixture = CliFixture::with_model(&server);
    let output = fixture.capstan_with_input(&["chat"], b"one\ntwo\n");
    assert_eq!((output.stdout.as_str(), output.code), ("ok\n", Some(1)), "{output:?}");
    assert!(output.stderr.contains("1 of 2 messages failed"), "{output:?}");
    let output = fixture.capstan_with_input(&["chat"], b"three\n\xff\n");
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output.stderr.contains("error[model-unauthorized]") && output.stderr.contains("error[input-invalid]"),
        "{output:?}"
    );
}

#[test]
fn a03_failed_command_of_a_pipe_fails_the_chat_after_the_rest_is_served() {
    let fixture = CliFixture::new();
    let output = fixture.capstan_with_input(&["chat"], b",exit 3\n,echo after\n").failed("command-failed", 1);
    assert!(output.stdout.ends_with("after\n"), "{output:?}");
    assert!(output.stderr.contains("1 of 2 messages failed"), "{output:?}");
}

#[test]
fn c01_invalid_model_and_reserved_session_are_rejected() {
    let fixture = CliFixture::new();
    fixture.capstan(&["chat", "--model", "nonsense"]).refused("usage", 2);
    fixture.capstan(&["chat", "--model", "openai:"]).refused("usage", 2);
    fixture.capstan(&["chat", "--session-id", "system"]).refused("session-reserved", 2);
}

#[test]
fn a04_chat_id_selects_the_chat_and_its_session() {
    let fixture = CliFixture::new();
    fixture.capstan_with_input(&["chat", "--chat-id", "garden"], b"hello\n").succeeded();
    assert_eq!(entries_of_kind(&fixture.tape("cli:garden"), "message").len(), 2);
    let events = fixture.capstan(&["tape", "events", "cli:garden", "--json"]).values();
    let inbound = events.iter().find(|fact| fact["fact"] == "inbound").unwrap();
    assert_eq!(inbound["event"]["conversation_id"], "garden");
}
