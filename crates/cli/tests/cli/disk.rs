//! The real binary on a full disk, and across power cuts.
#![cfg(target_os = "linux")]

use crate::support::{BinaryOutput, CliFixture, StdioServer, entries_named, entries_of_kind};
use capstan_testing::disk::{DiskCall, DiskLayer, PowerCut, SimulatedDisk};
use serde_json::{Value, json};

/// Runs the binary on a simulated disk.
fn run_on_layer(layer: &DiskLayer, fixture: &CliFixture, arguments: &[&str]) -> BinaryOutput {
    let mut command = fixture.command(arguments);
    layer.preload_into(&mut command);
    BinaryOutput::from(command.output().expect("the binary starts"))
}

fn message_contents(entries: &[Value]) -> Vec<&str> {
    entries_of_kind(entries, "message").iter().filter_map(|entry| entry["payload"]["content"].as_str()).collect()
}

#[test]
fn x02_run_on_a_full_disk_reports_it_and_the_next_run_works() {
    let (mut refused, mut broken_off) = (0, 0);
    // From no space for the database to space for the whole run: the disk gets full at every stage in between.
    for bytes in (1..).step_by(32_000) {
        let fixture = CliFixture::new();
        let output =
            run_on_layer(&DiskLayer::for_folder(&fixture.root()).with_free_bytes(bytes), &fixture, &["run", "hello"]);
        if output.code == Some(0) {
            break;
        }
        let output = output.failed("disk-full", 4);
        let names_a_file = output.stderr.contains(&format!("error[disk-full]: {}/", fixture.home().display()));
        assert!(names_a_file && output.stderr.contains(" cannot be written: the disk is full"), "{output:?}");
        if fixture.capstan(&["tape", "list", "--json"]).json() == json!([]) {
            assert_eq!(output.stdout, "");
            refused += 1;
        } else {
            assert_eq!(entries_named(&fixture.entries(), "event.accepted").len(), 1);
            assert_eq!(fixture.outcomes(), (0, 1), "the event is in flight");
            broken_off += 1;
        }
        fixture.capstan(&["run", "again"]).data();
        assert!(message_contents(&fixture.entries()).contains(&"again"));
        fixture.assert_undamaged();
    }
    assert!(refused > 1 && broken_off > 1, "{refused} and {broken_off}");
}

#[test]
fn c06_stdio_caller_is_notified_of_a_full_disk_and_later_of_the_outcome() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    // From no space to open the home, or to accept the line, to no space for the end of the turn.
    for bytes in (16_000..).step_by(8_000) {
        let layer = DiskLayer::for_folder(&fixture.root()).with_free_bytes(bytes);
        let mut command = fixture.command(&["serve", "--channel", "stdio"]);
        layer.preload_into(&mut command);
        let Some(mut stdio) = StdioServer::start_if_ready(command) else { continue };
        let event_id = format!("e-{bytes}");
        let output = stdio.send_and_recv(&json!({"id": bytes, "session": "s", "text": "hello", "event_id": event_id}));
        assert_eq!(output["id"], bytes, "{output}");
        if output["error"].is_object() {
            layer.lift_space_limit();
            stdio.close().succeeded();
            continue;
        }
        assert_eq!((&output["delayed"]["code"], &output["outcome"]), (&json!("disk-full"), &json!(null)), "{output}");
        assert!(!output["delayed"]["hint"].as_str().unwrap().is_empty());
        layer.lift_space_limit();
        let answer = stdio.recv_line();
        // The error depends on the write that failed.
        assert!(answer["id"] == bytes && answer["outcome"].is_string(), "{answer}");
        stdio.close().succeeded();
        break;
    }
    assert_eq!(fixture.outcomes().1, 0);
    fixture.assert_undamaged();
}

/// A fixture with an event in flight: the disk had space for the message, but not for the end of its turn.
fn fixture_with_event_in_flight() -> CliFixture {
    let broken_off = |bytes| {
        let fixture = CliFixture::new();
        let output =
            run_on_layer(&DiskLayer::for_folder(&fixture.root()).with_free_bytes(bytes), &fixture, &["run", "first"]);
        let is_accepted = fixture.capstan(&["tape", "list", "--json"]).json() != json!([]);
        (output.code == Some(4) && is_accepted).then_some(fixture)
    };
    (100_000..).step_by(16_000).find_map(broken_off).unwrap()
}

#[test]
fn x01_serve_fails_if_a_full_disk_leaves_an_event_unsettled() {
    let fixture = fixture_with_event_in_flight();
    // From no space to open the home to no space to recover the event.
    for bytes in (16_000..).step_by(8_000) {
        let layer = DiskLayer::for_folder(&fixture.root()).with_free_bytes(bytes);
        let output = run_on_layer(&layer, &fixture, &["serve", "--channel", "stdio"]);
        if output.code == Some(4) {
            output.failed("disk-full", 4);
            continue;
        }
        output.failed("events-left", 1);
        break;
    }
    assert_eq!(fixture.outcomes(), (0, 1), "it is still in flight");
    fixture.capstan(&["serve", "--channel", "stdio"]).succeeded();
    assert_eq!(fixture.outcomes(), (1, 0), "with free space the event gets its outcome");
    fixture.assert_undamaged();
}

#[test]
fn x02_run_queued_behind_one_stopped_by_a_full_disk_is_notified_too() {
    let fixture = fixture_with_event_in_flight();
    let mut most_in_flight = 1;
    for bytes in (32_000..).step_by(16_000) {
        let layer = DiskLayer::for_folder(&fixture.root()).with_free_bytes(bytes);
        let output = run_on_layer(&layer, &fixture, &["run", "behind it"]);
        if output.code == Some(0) {
            break;
        }
        output.failed("disk-full", 4);
        most_in_flight = most_in_flight.max(fixture.outcomes().1);
    }
    assert!(most_in_flight > 1, "some were accepted");
    assert_eq!(fixture.outcomes().1, 0, "with free space all of them get their outcome");
    fixture.assert_undamaged();
}

#[test]
fn x02_full_disk_after_a_tool_ran_asks_the_user_to_check() {
    let [mut notified, mut quiet] = [0, 0];
    // From no space for the call to no space for the result, which is the largest write.
    for bytes in (150_000..).step_by(48_000) {
        let fixture = CliFixture::new().config("");
        let command = "[[tool:bash cmd=\"echo made >> effects; seq 1 40000\"]] go";
        let layer = DiskLayer::for_folder(&fixture.home()).with_free_bytes(bytes);
        let output = run_on_layer(&layer, &fixture, &["run", command]);
        let output = output.failed("disk-full", 4);
        let has_run = fixture.workspace().join("effects").exists();
        let is_unrecorded = has_run && entries_of_kind(&fixture.entries(), "tool_result").is_empty();
        assert_eq!(output.stderr.contains("bash had run before: check what was done"), is_unrecorded, "{output:?}");
        *(if is_unrecorded { &mut notified } else { &mut quiet }) += 1;
        if notified > 0 {
            break;
        }
    }
    assert!(notified > 0 && quiet > 0, "{notified} and {quiet}");
}

#[test]
fn full_disk_without_room_for_a_home_is_reported() {
    let fixture = CliFixture::new();
    let output = run_on_layer(&DiskLayer::for_folder(&fixture.root()).with_free_bytes(0), &fixture, &["run", "hello"]);
    output.refused("disk-full", 4);
    fixture.capstan(&["run", "hello"]).data();
}

#[test]
fn tapes_are_readable_on_a_full_disk() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let layer = DiskLayer::for_folder(&fixture.home()).with_free_bytes(0);
    // As SQLite leaves it when it can create the index of its log, but not fill it.
    std::fs::write(fixture.home().join("capstan.db-shm"), [0; 3]).unwrap();
    for command in [&["tape", "list"][..], &["tape", "show", "cli:local"], &["tape", "export", "cli:local"]] {
        assert_eq!(run_on_layer(&layer, &fixture, command).data(), fixture.capstan(command).data());
    }
    assert_eq!(run_on_layer(&layer, &fixture, &["tape", "verify", "--json"]).json()["problems"], json!([]));
    run_on_layer(&layer, &fixture, &["tape", "reset", "cli:local"]).refused("disk-full", 4);
    run_on_layer(&layer, &fixture, &["run", "more"]).refused("disk-full", 4);
    layer.lift_space_limit();
    run_on_layer(&layer, &fixture, &["run", "more"]).data();
    fixture.assert_undamaged();
}

/// Lists calls on one line, without their bytes.
fn describe_calls(disk: &SimulatedDisk, calls: &[DiskCall]) -> String {
    let describe = |call: &DiskCall| match call {
        DiskCall::Write { handle, offset, bytes } => {
            format!("write {} at {offset}, {} bytes", disk.path(*handle).display(), bytes.len())
        }
        DiskCall::Sync { handle } => format!("sync {}", disk.path(*handle).display()),
        DiskCall::WriteStdout { bytes } => format!("stdout {:?}", String::from_utf8_lossy(bytes)),
        other => format!("{other:?}"),
    };
    calls.iter().map(describe).collect::<Vec<_>>().join("; ")
}

#[test]
fn x01_first_answered_run_survives_a_power_cut_with_its_home() {
    let fixture = CliFixture::new();
    let layer = DiskLayer::for_folder(&fixture.root()).with_recording();
    run_on_layer(&layer, &fixture, &["run", "hello"]).data();
    let calls = layer.calls();
    let mut platter = SimulatedDisk::new();
    for (number, call) in calls.iter().enumerate() {
        platter.apply(call);
        // Between two syncs the durable state does not change, while the output grows.
        if !matches!(calls.get(number + 1), Some(DiskCall::Sync { .. }) | None) {
            continue;
        }
        let restored = CliFixture::new();
        platter.image_after(PowerCut::KeepSynced).write_to(&restored.root());
        restored.capstan(&["tape", "verify"]).succeeded();
        let (settled, in_flight) = if restored.database().exists() { restored.outcomes() } else { (0, 0) };
        let output = platter.stdout();
        assert!(output.is_empty() || settled + in_flight == 1, "answered, but not durable after call {number}");
        assert!(
            !output.ends_with('\n') || settled == 1,
            "completely answered, but without outcome after call {number} of {}: {}",
            calls.len(),
            describe_calls(&platter, &calls[number.saturating_sub(40)..=number])
        );
        restored.capstan(&["run", "again"]).data();
    }
    assert!(platter.stdout().ends_with("hello\n"));
}

#[test]
fn x01_stdio_reply_is_durable_before_it_is_sent() {
    let fixture = CliFixture::new();
    let layer = DiskLayer::for_folder(&fixture.root()).with_recording();
    let mut command = fixture.command(&["serve", "--channel", "stdio"]);
    layer.preload_into(&mut command);
    let mut stdio = StdioServer::start_if_ready(command).expect("enough disk space");
    for number in 1..=3 {
        let line = json!({"id": number, "session": "s", "text": "hello", "stream": number == 2});
        stdio.write(format!("{line}\n"));
        while stdio.recv_line()["outcome"] != "replied" {}
    }
    assert_eq!(stdio.close().data(), "");
    let calls = layer.calls();
    let (mut platter, mut answers) = (SimulatedDisk::new(), 0_i64);
    for (number, call) in calls.iter().enumerate() {
        platter.apply(call);
        // Between two syncs the durable state does not change, while the output grows.
        if !matches!(calls.get(number + 1), Some(DiskCall::Sync { .. }) | None) {
            continue;
        }
        let output = platter.stdout();
        answers = output.lines().map(|line| i64::from(line.contains("\"outcome\":\"replied\""))).sum();
        let streams = output.lines().any(|line| line.contains("\"event\""));
        let restored = CliFixture::new();
        platter.image_after(PowerCut::KeepSynced).write_to(&restored.root());
        restored.capstan(&["tape", "verify"]).succeeded();
        let (settled, in_flight) = if restored.database().exists() { restored.outcomes() } else { (0, 0) };
        assert!(settled >= answers, "{answers} answered, {settled} durable after call {number}");
        assert!(!streams || settled + in_flight >= 2, "streamed, but not durable after call {number}");
    }
    assert_eq!(answers, 3);
}

#[test]
fn x02_tool_call_on_stdio_is_durable_before_it_runs() {
    let fixture = CliFixture::new();
    let layer = DiskLayer::for_folder(&fixture.root()).with_recording();
    let mut command = fixture.command(&["serve", "--channel", "stdio"]);
    layer.preload_into(&mut command);
    let mut stdio = StdioServer::start_if_ready(command).expect("enough disk space");
    let prompt = format!("[[tool:bash cmd=\"wc -c < {} > made\"]] go", layer.log_path().display());
    let output = stdio.send_and_recv(&json!({"id": 1, "session": "s", "text": prompt}));
    assert_eq!(output["outcome"], "replied", "{output}");
    assert_eq!(stdio.close().data(), "");
    let written = std::fs::read_to_string(fixture.workspace().join("made")).unwrap();
    let calls = layer.calls_until(written.trim().parse().unwrap());
    let mut platter = SimulatedDisk::new();
    for call in &calls {
        platter.apply(call);
    }
    let restored = CliFixture::new();
    platter.image_after(PowerCut::KeepSynced).write_to(&restored.root());
    // The name of a tape depends on its workspace, which is another one here.
    let tapes = restored.capstan(&["tape", "list", "--json"]).json();
    let durable = restored.tape(tapes[0]["name"].as_str().unwrap());
    assert_eq!(entries_of_kind(&durable, "tool_call").len(), 1, "the call was durable before it ran");
}

#[test]
fn x02_serve_ends_with_an_error_when_a_sync_fails() {
    let fixture = CliFixture::new();
    let layer = DiskLayer::for_folder(&fixture.root());
    let mut command = fixture.command(&["serve", "--channel", "stdio"]);
    layer.preload_into(&mut command);
    let mut stdio = StdioServer::start_if_ready(command).expect("enough disk space");
    let hello = |id| json!({"id": id, "session": "s", "text": "hello", "event_id": format!("e-{id}")});
    assert_eq!(stdio.send_and_recv(&hello(1))["outcome"], "replied");
    std::fs::write(layer.sync_failure_file(), "").unwrap();
    stdio.send_line(&hello(2));
    stdio.wait_for_exit().failed("store-unsynced", 4);
    // No write that may be lost was acknowledged; after a restart everything continues.
    let mut stdio = StdioServer::start(&fixture);
    assert_eq!(stdio.send_and_recv(&hello(2))["outcome"], "replied");
    stdio.close().succeeded();
    assert_eq!(fixture.outcomes(), (2, 0));
    fixture.assert_undamaged();
}

#[test]
fn x07_serve_ends_with_an_error_when_its_files_are_removed_or_replaced() {
    type Manipulation = fn(&CliFixture);
    let manipulations: [Manipulation; 4] = [
        // The host may create a file during the removal.
        |fixture| {
            while fixture.home().exists() {
                let _not_empty = std::fs::remove_dir_all(fixture.home());
            }
        },
        |fixture| std::fs::rename(fixture.home(), fixture.path("moved")).unwrap(),
        |fixture| std::fs::rename(fixture.path("backup.db"), fixture.database()).unwrap(),
        |fixture| {
            std::fs::copy(fixture.path("backup.db"), fixture.database()).unwrap();
        },
    ];
    for manipulate in manipulations {
        let fixture = CliFixture::new();
        let mut stdio = StdioServer::start(&fixture);
        let hello = |id| json!({"id": id, "session": "s", "text": "hello", "event_id": format!("e-{id}")});
        assert_eq!(stdio.send_and_recv(&hello(1))["outcome"], "replied");
        fixture.capstan(&["store", "backup", &fixture.path("backup.db")]).succeeded();
        for id in 2..20 {
            assert_eq!(stdio.send_and_recv(&hello(id))["outcome"], "replied");
        }
        manipulate(&fixture);
        // The host may have ended by itself.
        let _ended = stdio.try_send_line(&hello(20));
        let output = stdio.wait_for_exit().failed("store-replaced", 4);
        assert!(!output.stdout.contains(r#""outcome""#), "nothing more was acknowledged: {output:?}");
    }
}

/// Runs a command in the folder of the fixture.
fn shell(fixture: &CliFixture, script: &str) {
    let status = std::process::Command::new("sh").args(["-c", script]).current_dir(fixture.root()).status().unwrap();
    assert!(status.success(), "{script}");
}

#[test]
fn x07_serve_ends_when_older_files_or_another_log_are_put_in_place() {
    for manipulation in [
        "cp -r old/. HOME/",
        "cp old/capstan.db* HOME/",
        "cp old/capstan.db old/capstan.db-wal old/capstan.db-shm HOME/",
        ": > HOME/capstan.db-wal",
        "cp old/capstan.db-wal HOME/",
    ] {
        let fixture = CliFixture::new();
        let script = |script: &str| script.replace("HOME", fixture.home().to_str().unwrap());
        let mut stdio = StdioServer::start(&fixture);
        let line = |id, text: &str| json!({"id": id, "session": "s", "text": text, "event_id": format!("e-{id}")});
        assert_eq!(stdio.send_and_recv(&line(1, "hello"))["outcome"], "replied");
        shell(&fixture, &script("cp -r HOME old"));
        assert_eq!(stdio.send_and_recv(&line(2, "hello"))["outcome"], "replied");
        shell(&fixture, &script(manipulation));
        // The host may have ended by itself.
        let _ended = stdio.try_send_line(&line(3, "[[tool:bash cmd=\"echo made >> effects\"]] go"));
        let output = stdio.wait_for_exit().failed("store-replaced", 4);
        assert!(!output.stdout.contains(r#""outcome""#), "{manipulation}: nothing was acknowledged: {output:?}");
        assert!(!fixture.workspace().join("effects").exists(), "{manipulation}: no tool was called");
    }
}

#[test]
fn x07_log_that_is_cut_during_a_turn_ends_the_host_without_a_reply() {
    let fixture = CliFixture::new();
    let mut stdio = StdioServer::start(&fixture);
    let log = fixture.home().join("capstan.db-wal");
    let text = format!("[[tool:bash cmd=\": > {}\"]] go", log.display());
    stdio.send_line(&json!({"id": 1, "session": "s", "text": text, "event_id": "e-1"}));
    let output = stdio.wait_for_exit().failed("store-replaced", 4);
    assert!(!output.stdout.contains(r#""outcome":"replied""#), "{output:?}");
    // All commits were in the log.
    fixture.capstan(&["doctor"]).failed("problems-found", 1);
}

fn full_device() -> std::fs::File {
    std::fs::File::options().write(true).open("/dev/full").unwrap()
}

/// Runs the binary with a standard error that cannot be written, like a log on a full disk.
fn run_with_full_stderr(fixture: &CliFixture, arguments: &[&str]) -> BinaryOutput {
    let mut command = fixture.command(arguments);
    command.stderr(full_device());
    BinaryOutput::from(command.output().expect("the binary starts"))
}

#[test]
fn x02_full_standard_error_does_not_stop_the_host() {
    let fixture = CliFixture::new();
    assert_eq!(run_with_full_stderr(&fixture, &["runs", "show", "nope"]).code, Some(2));
    assert_eq!(run_with_full_stderr(&fixture, &["nosuch"]).code, Some(2));
    let output = run_with_full_stderr(&fixture, &["run", "[[tool:bash cmd=\"echo ran > ran.log\"]]"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(fixture.workspace().join("ran.log").exists());
    let mut command = fixture.command(&["serve", "--channel", "stdio"]);
    let line = fixture.file("line", json!({"id": 1, "session": "s", "text": ",nosuch"}).to_string());
    command.stdin(std::fs::File::open(line).unwrap()).stderr(full_device());
    let output = BinaryOutput::from(command.output().expect("the binary starts"));
    assert!(output.stdout.contains("there is no command nosuch"), "{output:?}");
}
