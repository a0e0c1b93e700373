//! `capstan serve`: termination signals, missing readers, and recovery of orphaned work.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use crate::support::{BinaryOutput, CliFixture, StdioServer, wait_for_barrier};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply, send_signal};
use rusqlite::Connection;
use serde_json::{Value, json};

fn stdio_request(id: u64, session: &str, text: &str) -> Value {
    json!({"id": id, "session": session, "text": text, "event_id": format!("e-{id}")})
}

/// Number of outbox messages with this status.
fn count_outbox(fixture: &CliFixture, status: &str) -> i64 {
    let database = Connection::open(fixture.database()).expect("the database of the home");
    let count = "SELECT count(*) FROM outbox WHERE json_extract(status, '$.status') = ?1";
    database.query_row(count, [status], |row| row.get(0)).expect("a count")
}

#[test]
fn x03_signal_without_a_reader_ends_serve_with_true_delivery_states() {
    const LINE_COUNT: u64 = 40;
    let fixture = CliFixture::new().set("CAPSTAN_STOP_GRACE_SECONDS", "1");
    let mut process = fixture.command(&["serve", "--channel", "stdio"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    // More than the capacity of a pipe.
    for id in 0..LINE_COUNT {
        writeln!(input, "{}", stdio_request(id, &format!("s{id}"), &"x".repeat(20_000))).unwrap();
    }
    // From here on the tables exist.
    let output = process.stdout.as_ref().unwrap();
    while rustix::io::ioctl_fionread(output).unwrap() < 20_000 {
        std::thread::yield_now();
    }
    while fixture.outcomes().0 < 40 {
        std::thread::yield_now();
    }
    send_signal(process.id(), "TERM");
    assert_eq!(process.wait().unwrap().code(), Some(0));
    let mut read = Vec::new();
    process.stdout.take().unwrap().read_to_end(&mut read).unwrap();
    let complete_lines = String::from_utf8_lossy(&read).matches('\n').count() - 1;
    assert!(complete_lines > 0 && complete_lines < 40, "some fit into the pipe: {complete_lines}");
    assert_eq!(
        count_outbox(&fixture, "sent"),
        i64::try_from(complete_lines).unwrap(),
        "readable replies are recorded as sent"
    );
    assert_eq!(count_outbox(&fixture, "undelivered"), 40 - i64::try_from(complete_lines).unwrap());
    assert_eq!(fixture.outcomes(), (40, 0));
    fixture.assert_undamaged();
}

#[test]
fn x02_stop_without_grace_leaves_queued_events_for_the_next_start() {
    let barrier = ReplyBarrier::new();
    let replies = vec![
        ScriptedReply::text("one two").with_barrier(&barrier),
        ScriptedReply::text("second"),
        ScriptedReply::text("third"),
    ];
    let server = ScriptedModel::start_blocking(replies);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_STOP_GRACE_SECONDS", "0");
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&stdio_request(1, "s", "first"));
    wait_for_barrier(&barrier);
    stdio.send_line(&stdio_request(2, "s", "second"));
    stdio.send_line(&stdio_request(3, "s", "third"));
    while fixture.outcomes().1 < 3 {
        std::thread::yield_now();
    }
    stdio.signal("TERM");
    let answer = stdio.recv_line();
    assert_eq!((&answer["id"], &answer["outcome"]), (&json!(1), &json!("cancelled")));
    assert_eq!(stdio.wait_for_exit().succeeded().stdout, "", "the others get no reply");
    assert_eq!(fixture.outcomes(), (1, 2));

    let mut stdio = StdioServer::start(&fixture);
    for (id, text) in [(2, "second"), (3, "third")] {
        let answer = stdio.send_and_recv(&stdio_request(id, "s", text));
        assert_eq!((&answer["id"], &answer["text"]), (&json!(id), &json!(text)));
        assert_eq!(answer["duplicate"], true);
    }
    stdio.close().succeeded();
    assert_eq!(fixture.outcomes(), (3, 0));
    fixture.assert_undamaged();
}

#[test]
fn x02_serve_without_input_recovers_orphaned_events_and_exits() {
    let barrier = ReplyBarrier::new();
    let replies = vec![
        ScriptedReply::text("one two").with_barrier(&barrier),
        ScriptedReply::text("recovered"),
        ScriptedReply::text("and this"),
    ];
    let server = ScriptedModel::start_blocking(replies);
    let fixture = CliFixture::with_model(&server);
    let mut process = fixture.command(&["serve", "--channel", "stdio"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    writeln!(input, "{}", stdio_request(1, "s", "hello")).unwrap();
    wait_for_barrier(&barrier);
    writeln!(input, "{}", stdio_request(2, "s", "hello again")).unwrap();
    while fixture.outcomes().1 < 2 {
        std::thread::yield_now();
    }
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(fixture.outcomes(), (0, 2));

    // Standard input is /dev/null.
    let output = fixture.capstan(&["serve", "--channel", "stdio"]).succeeded();
    assert_eq!(output.stdout, "{\"ready\":true}\n", "the replies have no waiting caller");
    assert_eq!(fixture.outcomes(), (2, 0), "they are stored for duplicates");
    let mut stdio = StdioServer::start(&fixture);
    assert_eq!(stdio.send_and_recv(&stdio_request(1, "s", "hello"))["text"], "recovered");
    stdio.close().succeeded();
}

/// Starts the binary from a shell after this command.
fn shell_command(fixture: &CliFixture, first: &str, arguments: &[&str]) -> Command {
    let command = fixture.command(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{first} exec \"$@\""), "sh"]).arg(command.get_program()).args(arguments);
    shell.current_dir(fixture.workspace()).env_clear();
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

#[test]
fn c06_closed_standard_output_is_rejected_at_start() {
    let fixture = CliFixture::new();
    let output = shell_command(&fixture, "exec >&-;", &["serve", "--channel", "stdio"]).output().unwrap();
    BinaryOutput::from(output).refused("output-closed", 2);
    assert!(!fixture.database().exists(), "nothing was done");
    for arguments in [&["run", "hello"][..], &["run", "--json", "hello"], &["chat"]] {
        let output = shell_command(&fixture, "exec 1</dev/null;", arguments).output().unwrap();
        BinaryOutput::from(output).refused("output-closed", 2);
    }
    assert!(!fixture.database().exists(), "no message was accepted");
    // Discarding the replies on purpose is allowed; some programs open `/dev/null` for both directions.
    let output = shell_command(&fixture, "exec 1<>/dev/null;", &["run", "hello"]).output().unwrap();
    assert_eq!(BinaryOutput::from(output).data(), "");
    let output = BinaryOutput::from(
        shell_command(&fixture, "exec >/dev/null;", &["serve", "--channel", "stdio"]).output().unwrap(),
    );
    assert_eq!(output.data(), "");
}

#[test]
fn x03_closed_reader_fails_serve_and_its_replies_are_undelivered() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_STOP_GRACE_SECONDS", "0");
    let mut process = fixture.command(&["serve", "--channel", "stdio"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut ready = String::new();
    output.read_line(&mut ready).unwrap();
    let mut input = process.stdin.take().unwrap();
    writeln!(input, "{}", stdio_request(1, "s", "hello")).unwrap();
    wait_for_barrier(&barrier);
    writeln!(input, "{}", stdio_request(2, "s", "waits")).unwrap();
    while fixture.outcomes().1 < 2 {
        std::thread::yield_now();
    }
    drop(output);
    // The next output has no reader.
    writeln!(input, "no JSON").unwrap();
    // The input stays open: the closed output ends the process.
    let output = BinaryOutput::from(process.wait_with_output().unwrap()).failed("channel-failed", 1);
    assert!(output.stderr.contains("standard output is closed"), "{output:?}");
    drop(input);
    assert_eq!(
        fixture.outcomes(),
        (1, 1),
        "the running turn was cancelled, and queued events are left to the next start"
    );
    assert_eq!((count_outbox(&fixture, "sent"), count_outbox(&fixture, "undelivered")), (0, 1));
}

#[test]
fn x02_file_size_limit_acts_like_a_full_disk() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let blocks = fixture.database().metadata().unwrap().len() / 512;
    let mut limited = shell_command(&fixture, &format!("ulimit -f {blocks};"), &["run", &"x".repeat(120_000)]);
    BinaryOutput::from(limited.output().unwrap()).failed("disk-full", 4);
    fixture.capstan(&["run", "hello"]).data();
    fixture.assert_undamaged();
}

#[test]
fn x01_signalled_run_does_not_wait_for_a_stalled_reader() {
    let words = "word ".repeat(40_000);
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text(&words)]);
    let fixture = CliFixture::with_model(&server);
    let mut process = fixture.command(&["run", "hello"]).spawn().unwrap();
    // More than the capacity of a pipe without a reader.
    let output = process.stdout.as_ref().unwrap();
    while rustix::io::ioctl_fionread(output).unwrap() < 60_000 {
        std::thread::yield_now();
    }
    send_signal(process.id(), "TERM");
    // The output is read only after the process has ended: its reader is stalled until then.
    process.wait().unwrap();
    BinaryOutput::from(process.wait_with_output().unwrap()).failed("run-cancelled", 130);
    fixture.assert_undamaged();
}
