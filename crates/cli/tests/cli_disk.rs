//! The real binary on a disk that is full, and on one whose power goes.
#![cfg(target_os = "linux")]

mod cli_support;

use capstan_testing::disk::{DiskCall, DiskLayer, PowerCut, SimulatedDisk};
use cli_support::{BinaryOutput, CliFixture, StdioServer, entries_named, entries_of_kind};
use serde_json::{Value, json};

/// Calls the binary with a layer loaded.
fn run_on_layer(layer: &DiskLayer, place: &CliFixture, arguments: &[&str]) -> BinaryOutput {
    let mut command = place.command(arguments);
    layer.preload_into(&mut command);
    BinaryOutput::from(command.output().expect("the binary starts"))
}

fn message_contents(entries: &[Value]) -> Vec<&str> {
    entries_of_kind(entries, "message").iter().filter_map(|entry| entry["payload"]["content"].as_str()).collect()
}

#[test]
fn x02_a_run_on_a_full_disk_says_so_and_the_next_one_works() {
    let (mut refused, mut broken_off) = (0, 0);
    // From no room for the database to room for the whole run: the disk is full at every stage in between.
    for bytes in (1..).step_by(32_000) {
        let place = CliFixture::new();
        let said =
            run_on_layer(&DiskLayer::for_folder(&place.root()).with_free_bytes(bytes), &place, &["run", "hello"]);
        if said.code == Some(0) {
            break;
        }
        let said = said.failed("disk-full", 4);
        let names_a_file = said.stderr.contains(&format!("error[disk-full]: {}/", place.home().display()));
        assert!(names_a_file && said.stderr.contains(" cannot be written: the disk is full"), "{said:?}");
        if place.capstan(&["tape", "list", "--json"]).json() == json!([]) {
            assert_eq!(said.stdout, "");
            refused += 1;
        } else {
            assert_eq!(entries_named(&place.entries(), "event.accepted").len(), 1);
            assert_eq!(place.outcomes(), (0, 1), "it is in flight");
            broken_off += 1;
        }
        place.capstan(&["run", "again"]).data();
        assert!(message_contents(&place.entries()).contains(&"again"));
        place.assert_undamaged();
    }
    assert!(refused > 1 && broken_off > 1, "{refused} and {broken_off}");
}

#[test]
fn c06_a_line_whose_turn_meets_a_full_disk_hears_so_at_once_and_its_outcome_when_there_is_room() {
    let place = CliFixture::new();
    place.capstan(&["run", "hello"]).data();
    // From no room to open the home, or to accept the line, to none for the end of its turn.
    for bytes in (16_000..).step_by(8_000) {
        let layer = DiskLayer::for_folder(&place.root()).with_free_bytes(bytes);
        let mut command = place.command(&["serve", "--channel", "stdio"]);
        layer.preload_into(&mut command);
        let Some(mut wire) = StdioServer::start_if_ready(command) else { continue };
        let event_id = format!("e-{bytes}");
        let said = wire.send_and_recv(&json!({"id": bytes, "session": "s", "text": "hello", "event_id": event_id}));
        assert_eq!(said["id"], bytes, "{said}");
        if said["error"].is_object() {
            layer.lift_space_limit();
            wire.close().succeeded();
            continue;
        }
        assert_eq!((&said["delayed"]["code"], &said["outcome"]), (&json!("disk-full"), &json!(null)), "{said}");
        assert!(!said["delayed"]["hint"].as_str().unwrap().is_empty());
        layer.lift_space_limit();
        let answer = wire.recv_line();
        // What it is depends on what there was no room for.
        assert!(answer["id"] == bytes && answer["outcome"].is_string(), "{answer}");
        wire.close().succeeded();
        break;
    }
    assert_eq!(place.outcomes().1, 0);
    place.assert_undamaged();
}

/// A place where an event is in flight: there was room for the message, and none for its end.
fn fixture_with_event_in_flight() -> CliFixture {
    let broken_off = |bytes| {
        let place = CliFixture::new();
        let said =
            run_on_layer(&DiskLayer::for_folder(&place.root()).with_free_bytes(bytes), &place, &["run", "first"]);
        let is_accepted = place.capstan(&["tape", "list", "--json"]).json() != json!([]);
        (said.code == Some(4) && is_accepted).then_some(place)
    };
    (100_000..).step_by(16_000).find_map(broken_off).unwrap()
}

#[test]
fn x01_serve_does_not_call_it_done_when_a_full_disk_keeps_an_event_from_its_outcome() {
    let place = fixture_with_event_in_flight();
    // From no room to open the home to none to take the event up.
    for bytes in (16_000..).step_by(8_000) {
        let layer = DiskLayer::for_folder(&place.root()).with_free_bytes(bytes);
        let said = run_on_layer(&layer, &place, &["serve", "--channel", "stdio"]);
        if said.code == Some(4) {
            said.failed("disk-full", 4);
            continue;
        }
        said.failed("events-left", 1);
        break;
    }
    assert_eq!(place.outcomes(), (0, 1), "it is in flight still");
    place.capstan(&["serve", "--channel", "stdio"]).succeeded();
    assert_eq!(place.outcomes(), (1, 0), "and with room for it the event has its outcome");
    place.assert_undamaged();
}

#[test]
fn x02_a_run_behind_one_that_a_full_disk_has_broken_off_is_told_so_too() {
    let place = fixture_with_event_in_flight();
    let mut most_in_flight = 1;
    for bytes in (32_000..).step_by(16_000) {
        let layer = DiskLayer::for_folder(&place.root()).with_free_bytes(bytes);
        let said = run_on_layer(&layer, &place, &["run", "behind it"]);
        if said.code == Some(0) {
            break;
        }
        said.failed("disk-full", 4);
        most_in_flight = most_in_flight.max(place.outcomes().1);
    }
    assert!(most_in_flight > 1, "some were accepted");
    assert_eq!(place.outcomes().1, 0, "and with room for it all of them have their outcome");
    place.assert_undamaged();
}

#[test]
fn x02_whose_tool_ran_when_the_disk_became_full_is_told_to_check() {
    let [mut told, mut quiet] = [0, 0];
    // From no room for the call to none for the result, which takes the most.
    for bytes in (150_000..).step_by(48_000) {
        let place = CliFixture::new().config("");
        let command = "[[tool:bash cmd=\"echo made >> effects; seq 1 40000\"]] go";
        let layer = DiskLayer::for_folder(&place.home()).with_free_bytes(bytes);
        let said = run_on_layer(&layer, &place, &["run", command]);
        let said = said.failed("disk-full", 4);
        let has_run = place.workspace().join("effects").exists();
        let is_unrecorded = has_run && entries_of_kind(&place.entries(), "tool_result").is_empty();
        assert_eq!(said.stderr.contains("bash had run before: check what was done"), is_unrecorded, "{said:?}");
        *(if is_unrecorded { &mut told } else { &mut quiet }) += 1;
        if told > 0 {
            break;
        }
    }
    assert!(told > 0 && quiet > 0, "{told} and {quiet}");
}

#[test]
fn a_disk_without_room_for_a_home_says_so() {
    let place = CliFixture::new();
    let said = run_on_layer(&DiskLayer::for_folder(&place.root()).with_free_bytes(0), &place, &["run", "hello"]);
    said.refused("disk-full", 4);
    place.capstan(&["run", "hello"]).data();
}

#[test]
fn tapes_can_be_read_when_the_disk_is_full() {
    let place = CliFixture::new();
    place.capstan(&["run", "hello"]).data();
    let layer = DiskLayer::for_folder(&place.home()).with_free_bytes(0);
    // What SQLite leaves where it finds room to make the index of its log and none to fill it.
    std::fs::write(place.home().join("capstan.db-shm"), [0; 3]).unwrap();
    for command in [&["tape", "list"][..], &["tape", "show", "cli:local"], &["tape", "export", "cli:local"]] {
        assert_eq!(run_on_layer(&layer, &place, command).data(), place.capstan(command).data());
    }
    assert_eq!(run_on_layer(&layer, &place, &["tape", "verify", "--json"]).json()["problems"], json!([]));
    run_on_layer(&layer, &place, &["tape", "reset", "cli:local"]).refused("disk-full", 4);
    run_on_layer(&layer, &place, &["run", "more"]).refused("disk-full", 4);
    layer.lift_space_limit();
    run_on_layer(&layer, &place, &["run", "more"]).data();
    place.assert_undamaged();
}

#[test]
fn x01_a_first_run_that_was_answered_survives_a_power_cut_with_its_home() {
    let place = CliFixture::new();
    let layer = DiskLayer::for_folder(&place.root()).with_recording();
    run_on_layer(&layer, &place, &["run", "hello"]).data();
    let calls = layer.calls();
    let mut platter = SimulatedDisk::new();
    for (number, call) in calls.iter().enumerate() {
        platter.apply(call);
        // Between two syncs the disk stays as it is, and ever more is said.
        if !matches!(calls.get(number + 1), Some(DiskCall::Sync { .. }) | None) {
            continue;
        }
        let left = CliFixture::new();
        platter.image_after(PowerCut::KeepSynced).write_to(&left.root());
        left.capstan(&["tape", "verify"]).succeeded();
        let (settled, in_flight) = if left.database().exists() { left.outcomes() } else { (0, 0) };
        let said = platter.stdout();
        assert!(said.is_empty() || settled + in_flight == 1, "answered, and not there after call {number}");
        assert!(!said.ends_with('\n') || settled == 1, "answered to the end, and no outcome after call {number}");
        left.capstan(&["run", "again"]).data();
    }
    assert!(platter.stdout().ends_with("hello\n"));
}

#[test]
fn x01_an_answer_on_stdio_is_on_disk_before_it_is_given() {
    let place = CliFixture::new();
    let layer = DiskLayer::for_folder(&place.root()).with_recording();
    let mut command = place.command(&["serve", "--channel", "stdio"]);
    layer.preload_into(&mut command);
    let mut wire = StdioServer::start_if_ready(command).expect("there is room");
    for number in 1..=3 {
        let line = json!({"id": number, "session": "s", "text": "hello", "stream": number == 2});
        wire.write(format!("{line}\n"));
        while wire.recv_line()["outcome"] != "replied" {}
    }
    assert_eq!(wire.close().data(), "");
    let calls = layer.calls();
    let (mut platter, mut answers) = (SimulatedDisk::new(), 0_i64);
    for (number, call) in calls.iter().enumerate() {
        platter.apply(call);
        // Between two syncs the disk stays as it is, and ever more is said.
        if !matches!(calls.get(number + 1), Some(DiskCall::Sync { .. }) | None) {
            continue;
        }
        let said = platter.stdout();
        answers = said.lines().map(|line| i64::from(line.contains("\"outcome\":\"replied\""))).sum();
        let streams = said.lines().any(|line| line.contains("\"event\""));
        let left = CliFixture::new();
        platter.image_after(PowerCut::KeepSynced).write_to(&left.root());
        left.capstan(&["tape", "verify"]).succeeded();
        let (settled, in_flight) = if left.database().exists() { left.outcomes() } else { (0, 0) };
        assert!(settled >= answers, "{answers} answered, {settled} there after call {number}");
        assert!(!streams || settled + in_flight >= 2, "it streams, and is not there after call {number}");
    }
    assert_eq!(answers, 3);
}

#[test]
fn x02_what_is_done_on_stdio_is_on_disk_before_it_is_done() {
    let place = CliFixture::new();
    let layer = DiskLayer::for_folder(&place.root()).with_recording();
    let mut command = place.command(&["serve", "--channel", "stdio"]);
    layer.preload_into(&mut command);
    let mut wire = StdioServer::start_if_ready(command).expect("there is room");
    let do_it = format!("[[tool:bash cmd=\"wc -c < {} > made\"]] go", layer.log_path().display());
    let said = wire.send_and_recv(&json!({"id": 1, "session": "s", "text": do_it}));
    assert_eq!(said["outcome"], "replied", "{said}");
    assert_eq!(wire.close().data(), "");
    let written = std::fs::read_to_string(place.workspace().join("made")).unwrap();
    let calls = layer.calls_until(written.trim().parse().unwrap());
    let mut platter = SimulatedDisk::new();
    for call in &calls {
        platter.apply(call);
    }
    let left = CliFixture::new();
    platter.image_after(PowerCut::KeepSynced).write_to(&left.root());
    // A tape is named after its workspace too, which is another one here.
    let tapes = left.capstan(&["tape", "list", "--json"]).json();
    let there = left.tape(tapes[0]["name"].as_str().unwrap());
    assert_eq!(entries_of_kind(&there, "tool_call").len(), 1, "the disk knew of it when it was done");
}

#[test]
fn x02_serve_ends_when_its_disk_fails_to_sync_and_says_so() {
    let place = CliFixture::new();
    let layer = DiskLayer::for_folder(&place.root());
    let mut command = place.command(&["serve", "--channel", "stdio"]);
    layer.preload_into(&mut command);
    let mut wire = StdioServer::start_if_ready(command).expect("there is room");
    let hello = |id| json!({"id": id, "session": "s", "text": "hello", "event_id": format!("e-{id}")});
    assert_eq!(wire.send_and_recv(&hello(1))["outcome"], "replied");
    std::fs::write(layer.sync_failure_file(), "").unwrap();
    wire.send_line(&hello(2));
    wire.wait_for_exit().failed("store-unsynced", 4);
    // Nobody was told of what the disk may not have; started anew, all of it goes on.
    let mut wire = StdioServer::start(&place);
    assert_eq!(wire.send_and_recv(&hello(2))["outcome"], "replied");
    wire.close().succeeded();
    assert_eq!(place.outcomes(), (2, 0));
    place.assert_undamaged();
}

fn full_device() -> std::fs::File {
    std::fs::File::options().write(true).open("/dev/full").unwrap()
}

/// A standard error that takes nothing, as a log on a full disk does.
fn run_with_full_stderr(place: &CliFixture, arguments: &[&str]) -> BinaryOutput {
    let mut command = place.command(arguments);
    command.stderr(full_device());
    BinaryOutput::from(command.output().expect("the binary starts"))
}

#[test]
fn x02_where_nobody_can_be_told_of_errors_everything_else_goes_on() {
    let place = CliFixture::new();
    assert_eq!(run_with_full_stderr(&place, &["runs", "show", "nope"]).code, Some(2));
    assert_eq!(run_with_full_stderr(&place, &["nosuch"]).code, Some(2));
    let said = run_with_full_stderr(&place, &["run", "[[tool:bash cmd=\"echo ran > ran.log\"]]"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(place.workspace().join("ran.log").exists());
    let mut command = place.command(&["serve", "--channel", "stdio"]);
    let line = place.file("line", json!({"id": 1, "session": "s", "text": ",nosuch"}).to_string());
    command.stdin(std::fs::File::open(line).unwrap()).stderr(full_device());
    let said = BinaryOutput::from(command.output().expect("the binary starts"));
    assert!(said.stdout.contains("there is no command nosuch"), "{said:?}");
}
