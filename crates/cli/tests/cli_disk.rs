//! The real binary on a disk that is full, and on one whose power goes.
#![cfg(target_os = "linux")]

mod cli_support;

use capstan_testing::disk::{Call, Cut, DiskLayer, Platter};
use cli_support::{Place, Said, Wire, named, of_kind};
use serde_json::{Value, json};

/// Calls the binary with a layer loaded.
fn capstan_on(layer: &DiskLayer, place: &Place, arguments: &[&str]) -> Said {
    let mut command = place.command(arguments);
    layer.load_into(&mut command);
    Said::from(command.output().expect("the binary starts"))
}

fn messages(entries: &[Value]) -> Vec<&str> {
    of_kind(entries, "message").iter().filter_map(|entry| entry["payload"]["content"].as_str()).collect()
}

#[test]
fn x02_a_run_on_a_full_disk_says_so_and_the_next_one_works() {
    let (mut refused, mut broken_off) = (0, 0);
    // From no room for the database to room for the whole run: the disk is full at every stage in between.
    for bytes in (1..).step_by(32_000) {
        let place = Place::new();
        let said = capstan_on(&DiskLayer::over(&place.root()).with_room(bytes), &place, &["run", "hello"]);
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
            assert_eq!(named(&place.entries(), "event.accepted").len(), 1);
            assert_eq!(place.outcomes(), (0, 1), "it is in flight");
            broken_off += 1;
        }
        place.capstan(&["run", "again"]).data();
        assert!(messages(&place.entries()).contains(&"again"));
        place.assert_undamaged();
    }
    assert!(refused > 1 && broken_off > 1, "{refused} and {broken_off}");
}

#[test]
fn c06_a_line_whose_turn_meets_a_full_disk_hears_so_at_once_and_its_outcome_when_there_is_room() {
    let place = Place::new();
    place.capstan(&["run", "hello"]).data();
    // From no room to open the home, or to accept the line, to none for the end of its turn.
    for bytes in (16_000..).step_by(8_000) {
        let layer = DiskLayer::over(&place.root()).with_room(bytes);
        let mut command = place.command(&["serve", "--channel", "stdio"]);
        layer.load_into(&mut command);
        let Some(mut wire) = Wire::if_ready(command) else { continue };
        let event_id = format!("e-{bytes}");
        let said = wire.answer_to(&json!({"id": bytes, "session": "s", "text": "hello", "event_id": event_id}));
        assert_eq!(said["id"], bytes, "{said}");
        if said["error"].is_object() {
            layer.make_room();
            wire.end().succeeded();
            continue;
        }
        assert_eq!((&said["delayed"]["code"], &said["outcome"]), (&json!("disk-full"), &json!(null)), "{said}");
        assert!(!said["delayed"]["hint"].as_str().unwrap().is_empty());
        layer.make_room();
        let answer = wire.line();
        // What it is depends on what there was no room for.
        assert!(answer["id"] == bytes && answer["outcome"].is_string(), "{answer}");
        wire.end().succeeded();
        break;
    }
    assert_eq!(place.outcomes().1, 0);
    place.assert_undamaged();
}

/// A place where an event is in flight: there was room for the message, and none for its end.
fn broken_off() -> Place {
    let broken_off = |bytes| {
        let place = Place::new();
        let said = capstan_on(&DiskLayer::over(&place.root()).with_room(bytes), &place, &["run", "first"]);
        let is_accepted = place.capstan(&["tape", "list", "--json"]).json() != json!([]);
        (said.code == Some(4) && is_accepted).then_some(place)
    };
    (100_000..).step_by(16_000).find_map(broken_off).unwrap()
}

#[test]
fn x01_serve_does_not_call_it_done_when_a_full_disk_keeps_an_event_from_its_outcome() {
    let place = broken_off();
    // From no room to open the home to none to take the event up.
    for bytes in (16_000..).step_by(8_000) {
        let layer = DiskLayer::over(&place.root()).with_room(bytes);
        let said = capstan_on(&layer, &place, &["serve", "--channel", "stdio"]);
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
    let place = broken_off();
    let mut most_in_flight = 1;
    for bytes in (32_000..).step_by(16_000) {
        let layer = DiskLayer::over(&place.root()).with_room(bytes);
        let said = capstan_on(&layer, &place, &["run", "behind it"]);
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
        let place = Place::new().config("");
        let command = "[[tool:bash cmd=\"echo made >> effects; seq 1 40000\"]] go";
        let layer = DiskLayer::over(&place.home()).with_room(bytes);
        let said = capstan_on(&layer, &place, &["run", command]);
        let said = said.failed("disk-full", 4);
        let has_run = place.workspace().join("effects").exists();
        let is_unrecorded = has_run && of_kind(&place.entries(), "tool_result").is_empty();
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
    let place = Place::new();
    let said = capstan_on(&DiskLayer::over(&place.root()).with_room(0), &place, &["run", "hello"]);
    said.refused("disk-full", 4);
    place.capstan(&["run", "hello"]).data();
}

#[test]
fn tapes_can_be_read_when_the_disk_is_full() {
    let place = Place::new();
    place.capstan(&["run", "hello"]).data();
    let layer = DiskLayer::over(&place.home()).with_room(0);
    // What SQLite leaves where it finds room to make the index of its log and none to fill it.
    std::fs::write(place.home().join("capstan.db-shm"), [0; 3]).unwrap();
    for command in [&["tape", "list"][..], &["tape", "show", "cli:local"], &["tape", "export", "cli:local"]] {
        assert_eq!(capstan_on(&layer, &place, command).data(), place.capstan(command).data());
    }
    assert_eq!(capstan_on(&layer, &place, &["tape", "verify", "--json"]).json()["problems"], json!([]));
    capstan_on(&layer, &place, &["tape", "reset", "cli:local"]).refused("disk-full", 4);
    capstan_on(&layer, &place, &["run", "more"]).refused("disk-full", 4);
    layer.make_room();
    capstan_on(&layer, &place, &["run", "more"]).data();
    place.assert_undamaged();
}

#[test]
fn x01_a_first_run_that_was_answered_survives_a_power_cut_with_its_home() {
    let place = Place::new();
    let layer = DiskLayer::over(&place.root()).recording();
    capstan_on(&layer, &place, &["run", "hello"]).data();
    let calls = layer.calls();
    let mut platter = Platter::new();
    for (number, call) in calls.iter().enumerate() {
        platter.take(call);
        // Between two syncs the disk stays as it is, and ever more is said.
        if !matches!(calls.get(number + 1), Some(Call::Sync { .. }) | None) {
            continue;
        }
        let left = Place::new();
        platter.cut(Cut::KeepsSynced).write_to(&left.root());
        left.capstan(&["tape", "verify"]).succeeded();
        let (settled, in_flight) = if left.database().exists() { left.outcomes() } else { (0, 0) };
        let said = platter.said();
        assert!(said.is_empty() || settled + in_flight == 1, "answered, and not there after call {number}");
        assert!(!said.ends_with('\n') || settled == 1, "answered to the end, and no outcome after call {number}");
        left.capstan(&["run", "again"]).data();
    }
    assert!(platter.said().ends_with("hello\n"));
}

#[test]
fn x01_an_answer_on_stdio_is_on_disk_before_it_is_given() {
    let place = Place::new();
    let layer = DiskLayer::over(&place.root()).recording();
    let mut command = place.command(&["serve", "--channel", "stdio"]);
    layer.load_into(&mut command);
    let mut wire = Wire::if_ready(command).expect("there is room");
    for number in 1..=3 {
        let line = json!({"id": number, "session": "s", "text": "hello", "stream": number == 2});
        wire.write(format!("{line}\n"));
        while wire.line()["outcome"] != "replied" {}
    }
    assert_eq!(wire.end().data(), "");
    let calls = layer.calls();
    let (mut platter, mut answers) = (Platter::new(), 0_i64);
    for (number, call) in calls.iter().enumerate() {
        platter.take(call);
        // Between two syncs the disk stays as it is, and ever more is said.
        if !matches!(calls.get(number + 1), Some(Call::Sync { .. }) | None) {
            continue;
        }
        let said = platter.said();
        answers = said.lines().map(|line| i64::from(line.contains("\"outcome\":\"replied\""))).sum();
        let streams = said.lines().any(|line| line.contains("\"event\""));
        let left = Place::new();
        platter.cut(Cut::KeepsSynced).write_to(&left.root());
        left.capstan(&["tape", "verify"]).succeeded();
        let (settled, in_flight) = if left.database().exists() { left.outcomes() } else { (0, 0) };
        assert!(settled >= answers, "{answers} answered, {settled} there after call {number}");
        assert!(!streams || settled + in_flight >= 2, "it streams, and is not there after call {number}");
    }
    assert_eq!(answers, 3);
}

#[test]
fn x02_what_is_done_on_stdio_is_on_disk_before_it_is_done() {
    let place = Place::new();
    let layer = DiskLayer::over(&place.root()).recording();
    let mut command = place.command(&["serve", "--channel", "stdio"]);
    layer.load_into(&mut command);
    let mut wire = Wire::if_ready(command).expect("there is room");
    let do_it = format!("[[tool:bash cmd=\"wc -c < {} > made\"]] go", layer.log().display());
    let said = wire.answer_to(&json!({"id": 1, "session": "s", "text": do_it}));
    assert_eq!(said["outcome"], "replied", "{said}");
    assert_eq!(wire.end().data(), "");
    let written = std::fs::read_to_string(place.workspace().join("made")).unwrap();
    let calls = layer.calls_until(written.trim().parse().unwrap());
    let mut platter = Platter::new();
    for call in &calls {
        platter.take(call);
    }
    let left = Place::new();
    platter.cut(Cut::KeepsSynced).write_to(&left.root());
    // A tape is named after its workspace too, which is another one here.
    let tapes = left.capstan(&["tape", "list", "--json"]).json();
    let there = left.tape(tapes[0]["name"].as_str().unwrap());
    assert_eq!(of_kind(&there, "tool_call").len(), 1, "the disk knew of it when it was done");
}

#[test]
fn x02_serve_ends_when_its_disk_fails_to_sync_and_says_so() {
    let place = Place::new();
    let layer = DiskLayer::over(&place.root());
    let mut command = place.command(&["serve", "--channel", "stdio"]);
    layer.load_into(&mut command);
    let mut wire = Wire::if_ready(command).expect("there is room");
    let hello = |id| json!({"id": id, "session": "s", "text": "hello", "event_id": format!("e-{id}")});
    assert_eq!(wire.answer_to(&hello(1))["outcome"], "replied");
    std::fs::write(layer.no_sync_file(), "").unwrap();
    wire.ask(&hello(2));
    wire.ended().failed("store-unsynced", 4);
    // Nobody was told of what the disk may not have; started anew, all of it goes on.
    let mut wire = Wire::start(&place);
    assert_eq!(wire.answer_to(&hello(2))["outcome"], "replied");
    wire.end().succeeded();
    assert_eq!(place.outcomes(), (2, 0));
    place.assert_undamaged();
}

fn full_device() -> std::fs::File {
    std::fs::File::options().write(true).open("/dev/full").unwrap()
}

/// A standard error that takes nothing, as a log on a full disk does.
fn unheard(place: &Place, arguments: &[&str]) -> Said {
    let mut command = place.command(arguments);
    command.stderr(full_device());
    Said::from(command.output().expect("the binary starts"))
}

#[test]
fn x02_where_nobody_can_be_told_of_errors_everything_else_goes_on() {
    let place = Place::new();
    assert_eq!(unheard(&place, &["runs", "show", "nope"]).code, Some(2));
    assert_eq!(unheard(&place, &["nosuch"]).code, Some(2));
    let said = unheard(&place, &["run", "[[tool:bash cmd=\"echo ran > ran.log\"]]"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(place.workspace().join("ran.log").exists());
    let mut command = place.command(&["serve", "--channel", "stdio"]);
    let line = place.file("line", json!({"id": 1, "session": "s", "text": ",nosuch"}).to_string());
    command.stdin(std::fs::File::open(line).unwrap()).stderr(full_device());
    let said = Said::from(command.output().expect("the binary starts"));
    assert!(said.stdout.contains("there is no command nosuch"), "{said:?}");
}
