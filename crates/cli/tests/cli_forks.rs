//! Forks and generations on the command line (P9, P11).

mod cli_support;

use std::process::Stdio;

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use cli_support::{CliFixture, entry_ids};

fn shown_ids(place: &CliFixture, arguments: &[&str]) -> Vec<u64> {
    entry_ids(&place.capstan(&[&["tape", "show"], arguments, &["--json"]].concat()).values())
}

#[test]
fn p09_a_fork_shows_its_parent_up_to_an_entry_and_ends_once() {
    let place = CliFixture::new();
    place.capstan(&["run", "hello"]).data();
    let all = shown_ids(&place, &["cli:local"]);
    place.capstan(&["tape", "fork", "cli:local", "--as", "side", "--at", "6"]).data();
    assert_eq!(shown_ids(&place, &["side"]), [1, 2, 3, 4, 5, 6]);
    place.capstan(&["tape", "merge", "side"]).data();
    assert_eq!(shown_ids(&place, &["cli:local"]), all, "it had nothing of its own");
    place.capstan(&["tape", "discard", "side"]).refused("tape-fork-closed", 2);
}

#[test]
fn p11_a_reset_begins_a_generation_with_session_start_and_the_old_one_stays_readable() {
    let place = CliFixture::new();
    place.capstan(&["run", "hello"]).data();
    let before = shown_ids(&place, &["cli:local"]);
    place.capstan(&["tape", "reset", "cli:local", "--archive"]).data();
    let after = shown_ids(&place, &["cli:local"]);
    assert_eq!(after, [before.len() as u64 + 1, before.len() as u64 + 2], "ids go on");
    assert_eq!(shown_ids(&place, &["cli:local", "--generation", "1"]), before);
    let reply = place.capstan(&["run", "hello again"]).data();
    assert!(reply.starts_with("I am the demo model"), "the model knows nothing of what was before: {reply}");
}

#[test]
fn p11_a_tape_is_not_reset_under_a_turn() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("one two").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let run = place.command(&["run", "hello"]).stdout(Stdio::piped()).spawn().unwrap();
    while !gate.is_reached() {
        std::thread::yield_now();
    }
    place.capstan(&["tape", "reset", "cli:local"]).refused("session-busy", 1);
    gate.release();
    assert!(run.wait_with_output().unwrap().status.success());
    place.capstan(&["tape", "reset", "cli:local"]).data();
}
