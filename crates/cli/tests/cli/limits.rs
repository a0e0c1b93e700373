//! Limits of the machine: open files, and the process table of a container.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::Command;

use crate::support::{CliFixture, StdioServer, wait_for_barrier};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

/// The server under a soft and hard limit of open files.
fn command_with_file_limit(fixture: &CliFixture, limit: u32) -> Command {
    let server = fixture.command(&["serve", "--channel", "stdio"]);
    let mut command = fixture.command(&["-c", &format!("ulimit -n {limit}; exec \"$@\""), "sh"]);
    command = other_program("sh", &command);
    command.arg(server.get_program()).args(server.get_args());
    command
}

/// The same arguments and environment for another program in place of the binary.
fn other_program(program: &str, command: &Command) -> Command {
    let mut shell = Command::new(program);
    shell.args(command.get_args()).env_clear().current_dir(command.get_current_dir().expect("a folder"));
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    shell
}

/// A model that has every session run this command first, and replies then.
fn model_with_tool_calls(command: &str, barrier: &ReplyBarrier) -> ScriptedModel {
    let (command, barrier) = (command.to_owned(), barrier.clone());
    ScriptedModel::start_blocking_with(move |request, number| {
        let last = request["messages"].as_array().and_then(|messages| messages.last()).expect("a message").clone();
        if last["role"] == "tool" {
            return ScriptedReply::text(format!("said {}", last["content"].as_str().unwrap_or_default()));
        }
        let call = (format!("call_{number}"), "bash".to_owned(), json!({"cmd": command}));
        ScriptedReply::tool_calls([call]).with_text("I look").with_barrier(&barrier)
    })
}

/// Sends one message to each of `count` sessions.
fn send_to_sessions(server: &mut StdioServer, count: usize) {
    for number in 0..count {
        server.send_line(&json!({"id": number, "session": format!("s{number}"), "text": format!("m{number}")}));
    }
}

/// Waits until all these events are accepted.
fn wait_for_acceptance(fixture: &CliFixture, count: i64) {
    loop {
        let (settled, in_flight) = fixture.outcomes();
        if settled + in_flight >= count {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Asserts that each of `count` lines gets the reply of the model, once.
fn assert_all_replied(server: &mut StdioServer, count: usize) {
    let lines: Vec<Value> = (0..count).map(|_| server.recv_line()).collect();
    for line in &lines {
        assert_eq!(line["outcome"], "replied", "{line}");
        assert!(line["text"].as_str().is_some_and(|text| text.ends_with("said fine")), "{line}");
    }
    let ids: BTreeSet<u64> = lines.iter().filter_map(|line| line["id"].as_u64()).collect();
    assert_eq!(ids.len(), count, "each line is answered once");
}

#[test]
fn x01_more_sessions_than_open_files_are_all_answered() {
    let session_count = 100;
    let barrier = ReplyBarrier::new();
    let model = model_with_tool_calls("echo fine", &barrier);
    let fixture = CliFixture::with_model(&model);
    let mut server = StdioServer::with_command(command_with_file_limit(&fixture, 64));
    send_to_sessions(&mut server, session_count);
    wait_for_barrier(&barrier);
    wait_for_acceptance(&fixture, 100);
    barrier.release();
    assert_all_replied(&mut server, session_count);
    assert_eq!(server.close().code, Some(0));
    fixture.assert_undamaged();
}

#[test]
fn x01_turn_without_a_free_file_waits_instead_of_failing() {
    let session_count = 60;
    let barrier = ReplyBarrier::new();
    let model = model_with_tool_calls("echo fine", &barrier);
    // Far more turns than the limit of open files has room for.
    let fixture = CliFixture::with_model(&model).set("CAPSTAN_MAX_ACTIVE_TURNS", "60");
    let mut server = StdioServer::with_command(command_with_file_limit(&fixture, 48));
    send_to_sessions(&mut server, session_count);
    server.wait_for_stderr("too many open files");
    barrier.release();
    assert_all_replied(&mut server, session_count);
    server.close();
    fixture.assert_undamaged();
}

#[test]
fn x02_recovery_of_many_events_respects_the_limit_of_turns() {
    let session_count = 40;
    let held = ReplyBarrier::new();
    let model = model_with_tool_calls("echo begin >> turns; sleep 0.02; echo end >> turns; echo fine", &held);
    let fixture = CliFixture::with_model(&model).set("CAPSTAN_MAX_ACTIVE_TURNS", "3");
    let mut killed = StdioServer::start(&fixture);
    send_to_sessions(&mut killed, session_count);
    wait_for_acceptance(&fixture, 40);
    wait_for_barrier(&held);
    killed.signal("KILL");
    killed.wait_for_exit();
    held.release();

    let server = StdioServer::start(&fixture);
    assert_eq!(server.close().code, Some(0), "an end of the input ends the server once every event is settled");
    assert_eq!(fixture.outcomes(), (40, 0));
    let turns = std::fs::read_to_string(fixture.workspace().join("turns")).expect("the commands ran");
    let mut running = 0;
    for line in turns.lines() {
        running += if line == "begin" { 1 } else { -1 };
        assert!(running <= 3, "{running} turns at a time");
    }
    assert_eq!(turns.lines().count(), 2 * session_count, "every recovered event got a turn");
    fixture.assert_undamaged();
}

/// Process id of the only child of a process.
fn only_child(process: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).expect("its children");
    children.trim().parse().unwrap_or_else(|_| panic!("one child: {children}"))
}

/// The server as process 1 of a container.
fn container_command(fixture: &CliFixture) -> Command {
    let host = fixture.command(&["serve", "--channel", "stdio"]);
    // `--mount-proc` needs a root that is a mount point, which that of a chroot is not.
    let mount_proc = r#"mount --make-private /proc && mount -t proc proc /proc && exec "$@""#;
    let unshare = ["--pid", "--fork", "--mount", "--propagation", "unchanged", "sh", "-c", mount_proc, "sh"];
    let mut container = other_program("unshare", &fixture.command(&unshare));
    container.arg(host.get_program()).args(host.get_args());
    container
}

/// Process 1 of the container that a process or its only descendants run.
fn process_one_below(mut process: u32) -> u32 {
    loop {
        process = only_child(process);
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
        let ids = status.lines().find(|line| line.starts_with("NSpid:")).expect("its ids");
        if ids.split_whitespace().count() > 2 {
            return process;
        }
    }
}

#[test]
fn x05_process_one_at_a_terminal_forwards_a_hangup() {
    let fixture = CliFixture::new();
    let container = container_command(&fixture);
    let words = std::iter::once(container.get_program()).chain(container.get_args());
    let words: Vec<String> = words.map(|word| format!("'{}'", word.to_str().expect("UTF-8"))).collect();
    let mut script = other_program("script", &fixture.command(&["-qefc", &words.join(" "), "/dev/null"]));
    let mut script = script.stdin(std::process::Stdio::piped()).spawn().expect("a terminal");
    let (mut output, mut seen) = (script.stdout.take().expect("a pipe"), Vec::new());
    while !String::from_utf8_lossy(&seen).contains("ready") {
        let mut bytes = [0; 512];
        let count = output.read(&mut bytes).expect("the output of the terminal");
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&bytes[..count]);
    }
    // A terminal that is closed sends it to the leader of the session only, which is process 1 in a container.
    capstan_testing::send_signal(process_one_below(script.id()), "HUP");
    output.read_to_end(&mut seen).expect("the output of the terminal");
    assert_eq!(script.wait().expect("it ends").code(), Some(0));
    assert!(String::from_utf8_lossy(&seen).contains("stopping:"), "{:?}", String::from_utf8_lossy(&seen));
}

#[test]
fn x05_process_one_of_a_container_reaps_orphans_and_forwards_signals() {
    let commands = [
        "for i in $(seq 20); do (sleep 0.01 &); done; echo left",
        "for i in $(seq 400); do count=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l); \
         [ $count = 0 ] && break; sleep 0.05; done; echo $count zombies",
        "exit 7",
    ];
    let mut calls = commands.into_iter();
    let model = ScriptedModel::start_blocking_with(move |request, number| {
        let last = request["messages"].as_array().and_then(|messages| messages.last()).expect("a message").clone();
        if last["role"] == "tool" {
            return ScriptedReply::text(last["content"].as_str().unwrap_or_default().to_owned());
        }
        let command = calls.next().expect("a command for each message");
        ScriptedReply::tool_calls([(format!("call_{number}"), "bash".to_owned(), json!({"cmd": command}))])
    });
    let fixture = CliFixture::with_model(&model);
    let container = container_command(&fixture);
    let mut server = StdioServer::with_command(container);
    let mut ask = |text: &str| server.send_and_recv(&json!({"session": "s", "text": text}))["text"].clone();
    assert_eq!(ask("leave orphans"), "left");
    assert_eq!(ask("count the zombies"), "0 zombies");
    assert_eq!(ask("fail"), "[exited with code 7]", "the tool gets the status of its command");
    let init = only_child(server.process_id());
    capstan_testing::send_signal(init, "TERM");
    let output = server.wait_for_exit();
    assert!(output.stderr.contains("stopping:"), "{output:?}");
    assert_eq!(output.code, Some(0));
}
