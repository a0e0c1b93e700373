//! Custom distribution: the complete command line of Capstan with one additional plugin.
//!
//! `cargo run -p capstan-examples --bin shout -- run hello` answers `HELLO`.

use std::process::ExitCode;

use capstan::Capstan;
use capstan_examples::model_stage::ShoutPlugin;

fn main() -> ExitCode {
    Capstan::builder().plugin(ShoutPlugin).build().main()
}
