//! Forks and generations on the command line (P9, P11).

mod cli_support;

use std::process::Stdio;

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use cli_support::{CliFixture, entry_ids};

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
    fixture.capstan(&["tape", "reset", "cli:local"]).refused("session-busy", 1);
    barrier.release();
    assert!(run.wait_with_output().unwrap().status.success());
    fixture.capstan(&["tape", "reset", "cli:local"]).data();
}
