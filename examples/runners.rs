//! Distribution with the example runners, to try them with the bindings of `docs/runners.md`.
//!
//! `cargo run -p capstan-examples --bin runners -- runners list` shows them next to the built-in agent.

use std::process::ExitCode;

use capstan::Capstan;
use capstan_examples::notebook::NotebookRunner;
use capstan_examples::rules::RulesRunner;

fn main() -> ExitCode {
    Capstan::builder().plugin(RulesRunner).plugin(NotebookRunner).build().main()
}
