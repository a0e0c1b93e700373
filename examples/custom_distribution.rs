//! A distribution of one's own: all of Capstan's command line, with one plugin more.
//!
//! `cargo run -p capstan-examples --bin shout -- run hello` answers `HELLO`.

use std::process::ExitCode;

use capstan::Capstan;
use capstan_examples::model_stage::ShoutPlugin;

fn main() -> ExitCode {
    Capstan::builder().plugin(ShoutPlugin).build().main()
}
