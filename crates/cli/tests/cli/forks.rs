//! Forks and generations on the command line (P2, P9, P11).

use std::process::Stdio;

use crate::support::{CliFixture, entry_ids};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};

fn shown_ids(fixture: &CliFixture, arguments: &[&str]) -> Vec<u64> {
    entry_ids(&fixture.capstan(&[&["tape", "show"], arguments, &["--json"]].concat()).values())
}

#[test]
fn p09_fork_shows_its_parent_up_to_an_entry_and_closes_once() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let all = shown_ids(&fixture, &["cli:local"]);
    fixture.capstan(&["tape", "fork", "cli:local", "--as", "side", "--at", "6"]).data();
    assert_eq!(shown_ids(&fixture, &["side"]), [1, 2, 3, 4, 5, 6]);
    fixture.capstan(&["tape", "merge", "side"]).data();
    assert_eq!(shown_ids(&fixture, &["cli:local"]), all, "it had no entries of its own");
    fixture.capstan(&["tape", "discard", "side"]).refused("tape-fork-closed", 2);
}

#[test]
fn p09_turns_on_a_fork_read_its_parent_and_join_it_with_the_merge() {
    let replies = ["one", "two", "three", "four"].map(ScriptedReply::text);
    let server = ScriptedModel::start_blocking(replies.into());
    let fixture = CliFixture::with_model(&server);
    fixture.capstan(&["run", "alfa"]).data();
    fixture.capstan(&["tape", "fork", "cli:local", "--as", "side"]).data();
    fixture.capstan(&["run", "--tape", "side", "bravo"]).data();
    fixture.capstan(&["run", "charlie"]).data();
    let requests: Vec<String> = server.requests().iter().map(ToString::to_string).collect();
    assert!(requests[1].contains("alfa") && requests[1].contains("bravo"), "{}", requests[1]);
    assert!(!requests[2].contains("bravo"), "the parent does not see its fork: {}", requests[2]);
    let runs = fixture.capstan(&["runs", "list", "--json"]).data();
    assert!(runs.contains("fork:side"), "{runs}");

    let merged = fixture.capstan(&["tape", "merge", "side"]).data();
    assert!(merged.starts_with("merged side: ") && !merged.contains(": 0 "), "{merged}");
    fixture.capstan(&["run", "delta"]).data();
    let last = server.requests().last().unwrap().to_string();
    for word in ["alfa", "bravo", "charlie", "delta"] {
        assert!(last.contains(word), "{word} is missing: {last}");
    }
    fixture.capstan(&["doctor"]).data();
}

#[test]
fn p09_only_an_open_fork_can_be_continued() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    fixture.capstan(&["tape", "fork", "cli:local", "--as", "side"]).data();
    fixture.capstan(&["run", "--tape", "nowhere", "hi"]).refused("tape-unknown", 2);
    fixture.capstan(&["run", "--tape", "cli:local", "hi"]).refused("usage", 2);
    fixture.capstan(&["run", "--session-id", "side", "hi"]).refused("session-is-fork", 2);
    fixture.capstan(&["run", "--session-id", "fork:nowhere", "hi"]).refused("tape-unknown", 2);
    fixture.capstan(&["run", "--session-id", "fork:side", "hi"]).data();
    fixture.capstan(&["tape", "discard", "side"]).data();
    fixture.capstan(&["run", "--tape", "side", "hi"]).refused("tape-fork-closed", 2);
    fixture.capstan(&["chat", "--tape", "side"]).refused("tape-fork-closed", 2);
    fixture.capstan(&["run", "--session-id", "fork:side", "hi"]).refused("tape-fork-closed", 2);
    fixture.capstan(&["doctor"]).data();
}

#[test]
fn p09_a_fork_is_not_closed_during_its_turn() {
    let barrier = ReplyBarrier::new();
    let replies = vec![ScriptedReply::text("one"), ScriptedReply::text("two").with_barrier(&barrier)];
    let server = ScriptedModel::start_blocking(replies);
    let fixture = CliFixture::with_model(&server);
    fixture.capstan(&["run", "hello"]).data();
    fixture.capstan(&["tape", "fork", "cli:local", "--as", "side"]).data();
    let run = fixture.command(&["run", "--tape", "side", "on the side"]).stdout(Stdio::piped()).spawn().unwrap();
    while !barrier.is_reached() {
        std::thread::yield_now();
    }
    fixture.capstan(&["tape", "merge", "side"]).refused("session-busy", 4);
    fixture.capstan(&["tape", "discard", "side"]).refused("session-busy", 4);
    barrier.release();
    assert!(run.wait_with_output().unwrap().status.success());
    fixture.capstan(&["tape", "merge", "side"]).data();
}

#[test]
fn p02_later_work_appends_to_the_tape_and_changes_no_entry() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let before = fixture.capstan(&["tape", "export", "cli:local"]).lines();
    fixture.capstan(&["tape", "fork", "cli:local", "--as", "side"]).data();
    fixture.capstan(&["run", "--tape", "side", "on the side"]).data();
    fixture.capstan(&["run", ",tape.handoff name=phase-2 summary=done"]).data();
    fixture.capstan(&["tape", "search", "cli:local", "hello"]).data();
    fixture.capstan(&["tape", "merge", "side"]).data();
    fixture.capstan(&["tape", "reset", "cli:local", "--archive"]).data();
    let after = fixture.capstan(&["tape", "export", "cli:local", "--generation", "1"]).lines();
    assert_eq!(after[..before.len()], before);
    assert!(after.len() > before.len(), "{after:?}");
}

#[test]
fn p11_reset_starts_a_generation_and_the_old_one_stays_readable() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let before = shown_ids(&fixture, &["cli:local"]);
    fixture.capstan(&["tape", "reset", "cli:local", "--archive"]).data();
    let after = shown_ids(&fixture, &["cli:local"]);
    assert_eq!(after, [before.len() as u64 + 1, before.len() as u64 + 2], "ids continue");
    assert_eq!(shown_ids(&fixture, &["cli:local", "--generation", "1"]), before);
    let reply = fixture.capstan(&["run", "hello again"]).data();
    assert!(reply.starts_with("I am the demo model"), "the model does not see the old generation: {reply}");
}

#[test]
fn p11_reset_is_rejected_during_a_turn() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let run = fixture.command(&["run", "hello"]).stdout(Stdio::piped()).spawn().unwrap();
    while !barrier.is_reached() {
        std::thread::yield_now();
    }
    fixture.capstan(&["tape", "reset", "cli:local"]).refused("session-busy", 4);
    barrier.release();
    assert!(run.wait_with_output().unwrap().status.success());
    fixture.capstan(&["tape", "reset", "cli:local"]).data();
}

#[test]
fn p09_hint_about_the_name_of_a_fork_names_its_option() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let refused = fixture.capstan(&["tape", "fork", "cli:local", "--as", "../evil"]).refused("tape-name-invalid", 2);
    assert!(refused.stderr.contains("--as") && !refused.stderr.contains("--name"), "{refused:?}");
}
