//! Test support for the real binary: a [`CliFixture`] to run it in, and its [`BinaryOutput`].

mod binary_output;
mod doctor;
mod fixture;
mod screen;
mod stdio_server;
mod sync_points;
mod tape;

pub use binary_output::BinaryOutput;
pub use doctor::{assert_status, doctor_report, execute_sql, find_check, fixture_with_events};
pub use fixture::{CliFixture, TEST_API_KEY};
pub use screen::{CTRL_C, CTRL_D, ENTER, TerminalSession};
pub use stdio_server::StdioServer;
pub use sync_points::{TEST_TIMEOUT, hold_pipe_reader, make_pipe, wait_for_barrier};
pub use tape::{entries_named, entries_of_kind, entry_ids, tape_name};

use std::path::PathBuf;

/// Path of a tape file written by Bub.
pub fn bub_sample_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/tape-sample.jsonl")
}

/// Lines of [`bub_sample_path`].
pub fn bub_sample_lines() -> Vec<String> {
    std::fs::read_to_string(bub_sample_path()).expect("the sample exists").lines().map(str::to_owned).collect()
}
