//! The binary with its output streams, signals and terminal.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use crate::support::{BinaryOutput, CliFixture, TerminalSession, entries_named, entries_of_kind, wait_for_barrier};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply, send_signal};
use serde_json::{Value, json};

#[test]
fn x03_reply_that_cannot_be_written_is_a_failure_and_on_the_tape() {
    let fixture = CliFixture::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = fixture.command(&["run", "hello"]).stdout(full).output().unwrap();
    BinaryOutput::from(output).failed("reply-undelivered", 1);
    let entries = fixture.entries();
    assert_eq!(entries_of_kind(&entries, "message").len(), 2, "the message and the reply");
}

#[test]
fn x03_reply_without_a_reader_is_undelivered_and_a_failure() {
    let fixture = CliFixture::new();
    for arguments in [&["run", "hello"][..], &["run", "--json", "hello"]] {
        for is_full in [false, true] {
            let mut command = fixture.command(arguments);
            command.stderr(Stdio::piped());
            if is_full {
                command.stdout(File::options().write(true).open("/dev/full").unwrap());
            } else {
                let (reader, writer) = std::io::pipe().unwrap();
                drop(reader);
                command.stdout(writer);
            }
            BinaryOutput::from(command.output().unwrap()).failed("reply-undelivered", 1);
        }
    }
    let listed = fixture.capstan(&["outbox", "list", "--json"]).succeeded().stdout;
    let messages: Vec<Value> = serde_json::from_str(&listed).unwrap();
    assert_eq!(messages.len(), 4, "{listed}");
    assert!(messages.iter().all(|message| message["status"] == "undelivered"), "{listed}");
}

/// Starts the binary through a wrapper such as `nohup`.
fn spawn_via(starter: &[&str], fixture: &CliFixture, arguments: &[&str]) -> Child {
    let command = fixture.command(arguments);
    let mut run = Command::new(starter[0]);
    run.args(&starter[1..]).arg(command.get_program()).args(arguments).current_dir(fixture.workspace()).env_clear();
    run.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn x01_signalled_run_keeps_its_text_and_has_an_outcome() {
    for signal in ["INT", "TERM", "HUP"] {
        let barrier = ReplyBarrier::new();
        let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two three").with_barrier(&barrier)]);
        let fixture = CliFixture::with_model(&server);
        // Ignored signals of the test runner would be inherited.
        let run = spawn_via(&["env", "--default-signal"], &fixture, &["run", "hello"]);
        wait_for_barrier(&barrier);
        send_signal(run.id(), signal);
        BinaryOutput::from(run.wait_with_output().unwrap()).failed("run-cancelled", 130);
        assert_eq!(fixture.outcomes(), (1, 0), "accepted and settled, after {signal}");
        fixture.assert_undamaged();
    }
}

#[test]
fn run_under_nohup_survives_its_terminal() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two three").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let run = spawn_via(&["nohup"], &fixture, &["run", "hello"]);
    wait_for_barrier(&barrier);
    send_signal(run.id(), "HUP");
    barrier.release();
    assert_eq!(BinaryOutput::from(run.wait_with_output().unwrap()).succeeded().stdout, "one two three\n");
}

#[test]
fn a03_cancelled_command_is_recorded_and_its_process_killed() {
    let fixture = CliFixture::new();
    let started = fixture.path("begun");
    let line = format!(",echo $$ > {started}; exec sleep 1000");
    let mut command = fixture.command(&["run", &line]);
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process = loop {
        match std::fs::read_to_string(&started) {
            Ok(process) if process.ends_with('\n') => break process.trim().to_owned(),
            _ => std::thread::yield_now(),
        }
    };
    send_signal(run.id(), "INT");
    BinaryOutput::from(run.wait_with_output().unwrap()).failed("run-cancelled", 130);
    let entries = fixture.entries();
    assert_eq!(entries_named(&entries, "command")[0]["payload"]["data"]["status"], "cancelled");
    let cmdline = std::path::Path::new("/proc").join(process).join("cmdline");
    assert!(std::fs::read(cmdline).unwrap_or_default().is_empty(), "the process has ended");
}

#[test]
fn home_is_private() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let mode = std::fs::metadata(fixture.home()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn reading_tapes_of_a_missing_home_writes_nothing() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.capstan(&["tape", "list"]).data(), "");
    fixture.capstan(&["tape", "show", "cli:local"]).refused("tape-unknown", 2);
    assert!(!fixture.home().exists());
}

#[test]
fn escape_sequences_of_a_tape_are_stripped() {
    let fixture = CliFixture::new();
    let line =
        r#"{"id":1,"kind":"ev\u001b[31ment","payload":{"a":"\u001b]0;owned\u0007\n"},"meta":{},"date":"\u001b[2J"}"#;
    let file = fixture.file("foreign.jsonl", format!("{line}\n"));
    let shown = fixture.capstan(&["tape", "show", &file]).data();
    assert!(!shown.trim_end_matches('\n').contains(|character: char| character.is_control()), "{shown:?}");
    assert!(fixture.capstan(&["tape", "export", &file]).data().contains("\\u001b"), "an export is data");
}

#[test]
fn p12_tape_store_that_lost_entries_is_reported_and_not_overwritten() {
    let fixture = CliFixture::new().config("tape_store = 'jsonl'\n");
    fixture.capstan(&["run", "hello"]).data();
    let folder = fixture.home().join("tapes");
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    let half: String = text.split_inclusive('\n').take(5).collect();
    std::fs::write(&file, &half).unwrap();
    let error = fixture.capstan(&["tape", "verify"]).failed("tape-damaged", 4);
    assert!(error.stderr.contains("has entries up to 5"), "{error:?}");
    fixture.capstan(&["run", "again"]).refused("store-corrupt", 4);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), half);
}

#[test]
fn p12_complete_last_line_that_is_no_entry_is_damage() {
    let fixture = CliFixture::new();
    for text in ["this is no tape\n", "42\n", "{\"id\":\"one\"}\n"] {
        let file = fixture.file("t.jsonl", text);
        fixture.capstan(&["tape", "import", &file]).refused("tape-damaged", 2);
    }
    let empty = fixture.file("t.jsonl", "");
    fixture.capstan(&["tape", "import", &empty]).refused("tape-file-unreadable", 2);
}

#[test]
fn a04_handoff_of_the_demo_model_happens_once() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "[[tool:tape.handoff name=z summary=q]]"]).succeeded();
    assert_eq!(entries_of_kind(&fixture.entries(), "anchor").len(), 2, "session/start and the requested one");
}

#[test]
fn session_id_may_look_like_a_path() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "--session-id", "a/b.jsonl", "hello"]).data();
    assert!(!fixture.capstan(&["tape", "show", "a/b.jsonl"]).data().is_empty());
}

#[test]
fn c01_escape_sequences_of_a_provider_error_are_stripped() {
    let refusal = json!({"error": {"message": "\u{1b}]0;owned\u{7}\u{1b}[2Jno such \u{9b}31mthing\u{202e}"}});
    let refusing = || ScriptedReply::status(400, refusal.to_string());
    let server = ScriptedModel::start_blocking(vec![refusing(), refusing()]);
    let fixture = CliFixture::with_model(&server);
    let run = fixture.capstan(&["run", "hello"]).refused("model-rejected", 1);
    let base = server.base_url();
    let onboard = ["onboard", "--model", "openai:scripted", "--api-base", &base, "--api-key-stdin"];
    let onboard =
        CliFixture::new().capstan_with_input(&onboard, b"sk-a-key-of-some-length").failed("model-rejected", 1);
    for output in [run, onboard] {
        assert!(output.stderr.contains(": no such thing\\u{202e}\n"), "{output:?}");
        let drives = |character: char| character != '\n' && (character.is_control() || character == '\u{202e}');
        assert!(!output.stderr.contains(drives), "{output:?}");
    }
}

#[test]
fn a04_long_tool_call_is_shown_shortened() {
    let content = "a long story ".repeat(20_000);
    let call = ScriptedReply::tool_calls([("call_1", "fs_write", json!({"content": content, "path": "story.txt"}))]);
    let server = ScriptedModel::start_blocking(vec![call, ScriptedReply::text("written")]);
    let fixture = CliFixture::with_model(&server);
    let output = fixture.capstan(&["run", "write"]).succeeded();
    let error: String = output.stderr.chars().take(500).collect();
    assert!(error.starts_with("> fs_write content=a long story") && error.ends_with("… path=story.txt\n"), "{error}");
    assert_eq!(std::fs::read_to_string(fixture.workspace().join("story.txt")).unwrap().len(), content.len());
}

/// Lines of a screen that contain this text.
fn lines_containing<'a>(screen: &'a str, text: &str) -> Vec<&'a str> {
    screen.lines().filter(|line| line.contains(text)).collect()
}

#[test]
fn c01_error_is_on_a_line_of_its_own_at_a_terminal() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("half an answer").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_RUN_TIMEOUT_SECONDS", "3");
    let screen = TerminalSession::open(&fixture.command(&["run", "hello"]), 200, 24);
    screen.wait_for("half");
    let shown = screen.wait_for("hint: ");
    assert!(lines_containing(&shown, "error[run-timeout]").iter().all(|line| line.starts_with("error[")), "{shown}");
    assert!(!shown.trim_end().contains("\n\n"), "no line is empty: {shown}");
    assert_eq!(screen.wait_for_exit(), Some(1));
    barrier.release();
}

#[test]
fn c01_log_line_is_on_a_line_of_its_own_at_a_terminal() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("this is cut by").truncated()]);
    let fixture = CliFixture::with_model(&server);
    let screen = TerminalSession::open(&fixture.command(&["run", "hello"]), 200, 24);
    let shown = screen.wait_for(" WARN ");
    assert_eq!(lines_containing(&shown, "this is cut by"), ["this is cut by"], "{shown}");
    assert_eq!(screen.wait_for_exit(), Some(0));
}

#[test]
fn x06_hidden_characters_are_shown_by_commands_at_a_terminal() {
    let fixture = CliFixture::new();
    let hidden = ['\u{9b}', '\u{202e}', '\u{200b}', '\u{2028}', '\u{ad}', '\u{2060}', '\u{3164}', '\u{e0041}'];
    fixture.capstan(&["run", &format!("begin{}end", hidden.iter().collect::<String>())]).data();
    let commands: [(&[&str], &str); 7] = [
        (&["tape", "show", "cli:local"], r"begin\x9b\u{202e}\u{200b}\u{2028}\xad\u{2060}\u{3164}\u{e0041}end"),
        (&["tape", "search", "cli:local", "begin"], r"\u{202e}"),
        (&["tape", "events", "cli:local"], r"\u{202e}"),
        (&["tape", "show", "cli:local", "--json"], r"begin\u009b\u202e\u200b\u2028\u00ad\u2060\u3164\udb40\udc41end"),
        (&["tape", "events", "cli:local", "--json"], r"\u202e"),
        (&["tape", "export", "cli:local"], r"\u202e"),
        (&["tape", "context"], r"\u202e"),
    ];
    for (command, shown) in commands {
        // Wide enough for a record on one line, or high enough for a request on many.
        let (columns, rows) = if command == ["tape", "context"] { (400, 1000) } else { (4000, 60) };
        let screen = TerminalSession::open(&fixture.command(command), columns, rows);
        screen.wait_for(shown);
        let raw = screen.raw();
        assert!(!raw.contains(hidden), "{command:?}: {raw:?}");
    }
    let piped = fixture.capstan(&["tape", "export", "cli:local"]).data();
    assert!(hidden.iter().all(|character| piped.contains(*character)), "programs get the text verbatim");
}
