//! `capstan serve` when it is told to end, when nobody reads what it says, and when it finds what another left.

mod cli_support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply, send_signal};
use cli_support::{BinaryOutput, CliFixture, StdioServer, wait_for_gate};
use rusqlite::Connection;
use serde_json::{Value, json};

fn stdio_request(id: u64, session: &str, text: &str) -> Value {
    json!({"id": id, "session": session, "text": text, "event_id": format!("e-{id}")})
}

/// How many messages of the outbox have this status.
fn count_outbox(place: &CliFixture, status: &str) -> i64 {
    let database = Connection::open(place.database()).expect("the database of the home");
    let count = "SELECT count(*) FROM outbox WHERE json_extract(status, '$.status') = ?1";
    database.query_row(count, [status], |row| row.get(0)).expect("a count")
}

#[test]
fn x03_told_to_end_while_nobody_reads_it_ends_and_the_fate_of_every_answer_is_the_truth() {
    const LINE_COUNT: u64 = 40;
    let place = CliFixture::new().set("CAPSTAN_STOP_GRACE_SECONDS", "1");
    let mut process = place.command(&["serve", "--channel", "stdio"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    // More than fits into a pipe.
    for id in 0..LINE_COUNT {
        writeln!(input, "{}", stdio_request(id, &format!("s{id}"), &"x".repeat(20_000))).unwrap();
    }
    // From here on the tables are there.
    let output = process.stdout.as_ref().unwrap();
    while rustix::io::ioctl_fionread(output).unwrap() < 20_000 {
        std::thread::yield_now();
    }
    while place.outcomes().0 < 40 {
        std::thread::yield_now();
    }
    send_signal(process.id(), "TERM");
    assert_eq!(process.wait().unwrap().code(), Some(0));
    let mut read = Vec::new();
    process.stdout.take().unwrap().read_to_end(&mut read).unwrap();
    let whole = String::from_utf8_lossy(&read).matches('\n').count() - 1;
    assert!(whole > 0 && whole < 40, "some fitted into the pipe: {whole}");
    assert_eq!(count_outbox(&place, "sent"), i64::try_from(whole).unwrap(), "what can be read was sent");
    assert_eq!(count_outbox(&place, "undelivered"), 40 - i64::try_from(whole).unwrap());
    assert_eq!(place.outcomes(), (40, 0));
    place.assert_undamaged();
}

#[test]
fn x02_a_forced_end_leaves_what_waits_in_flight_and_the_next_start_takes_it_up() {
    let gate = ReplyBarrier::new();
    let replies = vec![
        ScriptedReply::text("one two").with_barrier(&gate),
        ScriptedReply::text("second"),
        ScriptedReply::text("third"),
    ];
    let server = ScriptedModel::start_blocking(replies);
    let place = CliFixture::with_model(&server).set("CAPSTAN_STOP_GRACE_SECONDS", "0");
    let mut wire = StdioServer::start(&place);
    wire.send_line(&stdio_request(1, "s", "first"));
    wait_for_gate(&gate);
    wire.send_line(&stdio_request(2, "s", "second"));
    wire.send_line(&stdio_request(3, "s", "third"));
    while place.outcomes().1 < 3 {
        std::thread::yield_now();
    }
    wire.signal("TERM");
    let answer = wire.recv_line();
    assert_eq!((&answer["id"], &answer["outcome"]), (&json!(1), &json!("cancelled")));
    assert_eq!(wire.wait_for_exit().succeeded().stdout, "", "of the others nothing is said");
    assert_eq!(place.outcomes(), (1, 2));

    let mut wire = StdioServer::start(&place);
    for (id, text) in [(2, "second"), (3, "third")] {
        let answer = wire.send_and_recv(&stdio_request(id, "s", text));
        assert_eq!((&answer["id"], &answer["text"]), (&json!(id), &json!(text)));
        assert_eq!(answer["duplicate"], true);
    }
    wire.close().succeeded();
    assert_eq!(place.outcomes(), (3, 0));
    place.assert_undamaged();
}

#[test]
fn x02_without_any_input_it_takes_up_what_another_process_left_and_then_exits() {
    let gate = ReplyBarrier::new();
    let replies = vec![
        ScriptedReply::text("one two").with_barrier(&gate),
        ScriptedReply::text("taken up"),
        ScriptedReply::text("and this"),
    ];
    let server = ScriptedModel::start_blocking(replies);
    let place = CliFixture::with_model(&server);
    let mut process = place.command(&["serve", "--channel", "stdio"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    writeln!(input, "{}", stdio_request(1, "s", "hello")).unwrap();
    wait_for_gate(&gate);
    writeln!(input, "{}", stdio_request(2, "s", "hello again")).unwrap();
    while place.outcomes().1 < 2 {
        std::thread::yield_now();
    }
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(place.outcomes(), (0, 2));

    // Its standard input is /dev/null.
    let said = place.capstan(&["serve", "--channel", "stdio"]).succeeded();
    assert_eq!(said.stdout, "{\"ready\":true}\n", "nobody waits for the answers here");
    assert_eq!(place.outcomes(), (2, 0), "they are kept for who asks again");
    let mut wire = StdioServer::start(&place);
    assert_eq!(wire.send_and_recv(&stdio_request(1, "s", "hello"))["text"], "taken up");
    wire.close().succeeded();
}

/// The binary started by a shell that does this first.
fn shell_command(place: &CliFixture, first: &str, arguments: &[&str]) -> Command {
    let command = place.command(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{first} exec \"$@\""), "sh"]).arg(command.get_program()).args(arguments);
    shell.current_dir(place.workspace()).env_clear();
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

#[test]
fn c06_a_standard_output_that_is_closed_from_the_start_is_refused() {
    let place = CliFixture::new();
    let output = shell_command(&place, "exec >&-;", &["serve", "--channel", "stdio"]).output().unwrap();
    BinaryOutput::from(output).refused("output-closed", 2);
    assert!(!place.database().exists(), "nothing was done");
    // To want no answers is another matter.
    let said = BinaryOutput::from(
        shell_command(&place, "exec >/dev/null;", &["serve", "--channel", "stdio"]).output().unwrap(),
    );
    assert_eq!(said.data(), "");
}

#[test]
fn x03_a_reader_that_goes_away_is_a_failure_and_what_it_did_not_read_is_undelivered() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server).set("CAPSTAN_STOP_GRACE_SECONDS", "0");
    let mut process = place.command(&["serve", "--channel", "stdio"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut ready = String::new();
    output.read_line(&mut ready).unwrap();
    let mut input = process.stdin.take().unwrap();
    writeln!(input, "{}", stdio_request(1, "s", "hello")).unwrap();
    wait_for_gate(&gate);
    writeln!(input, "{}", stdio_request(2, "s", "waits")).unwrap();
    while place.outcomes().1 < 2 {
        std::thread::yield_now();
    }
    drop(output);
    // What is printed next finds nobody.
    writeln!(input, "no JSON").unwrap();
    // Its input stays open: it is the output that ends it.
    let said = BinaryOutput::from(process.wait_with_output().unwrap()).failed("channel-failed", 1);
    assert!(said.stderr.contains("the standard output is closed"), "{said:?}");
    drop(input);
    assert_eq!(place.outcomes(), (1, 1), "what ran was cancelled, and what waited is for the next start");
    assert_eq!((count_outbox(&place, "sent"), count_outbox(&place, "undelivered")), (0, 1));
}

#[test]
fn x02_a_limit_on_the_size_of_files_is_a_full_disk_and_no_sudden_death() {
    let place = CliFixture::new();
    place.capstan(&["run", "hello"]).data();
    let blocks = place.database().metadata().unwrap().len() / 512;
    let mut limited = shell_command(&place, &format!("ulimit -f {blocks};"), &["run", &"x".repeat(120_000)]);
    BinaryOutput::from(limited.output().unwrap()).failed("disk-full", 4);
    place.capstan(&["run", "hello"]).data();
    place.assert_undamaged();
}

#[test]
fn x01_a_run_that_is_told_to_end_does_not_wait_for_a_reader_that_does_not_read() {
    let words = "word ".repeat(40_000);
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text(&words)]);
    let place = CliFixture::with_model(&server);
    let process = place.command(&["run", "hello"]).spawn().unwrap();
    // More than fits into a pipe that nobody reads.
    let output = process.stdout.as_ref().unwrap();
    while rustix::io::ioctl_fionread(output).unwrap() < 60_000 {
        std::thread::yield_now();
    }
    send_signal(process.id(), "TERM");
    BinaryOutput::from(process.wait_with_output().unwrap()).failed("run-cancelled", 130);
    place.assert_undamaged();
}
