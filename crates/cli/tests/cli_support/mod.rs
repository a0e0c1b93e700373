//! What drives the tests of the real binary: a [`Place`] to call it in, and what it [`Said`].

#![allow(dead_code, unused_imports, reason = "each test binary uses the part it needs")]

mod examined;
mod held;
mod place;
mod said;
mod screen;
mod tape;
mod wire;

pub use examined::{assert_status, check, examined, place_with_events, sql};
pub use held::{TOO_LONG, hold_reader_of, make_pipe, wait_for};
pub use place::{KEY, Place};
pub use said::Said;
pub use screen::{CTRL_C, CTRL_D, ENTER, Screen};
pub use tape::{ids, named, of_kind, tape_name};
pub use wire::Wire;

use std::path::PathBuf;

/// The tape of another system, as it wrote it.
pub fn sample() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/tape-sample.jsonl")
}

/// The lines of [`sample`].
pub fn sample_lines() -> Vec<String> {
    std::fs::read_to_string(sample()).expect("the sample is there").lines().map(str::to_owned).collect()
}
