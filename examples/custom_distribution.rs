//! Custom distribution: the complete command line of Capstan with two additional plugins.
//!
//! `cargo run -p capstan-examples --bin shout -- run hello` answers `HELLO`, and `shout forecast Paris --days 2` runs the
//! command of the weather plugin.

use std::process::ExitCode;

use capstan::Capstan;
use capstan_examples::model_stage::ShoutPlugin;
use capstan_examples::weather::WeatherPlugin;

fn main() -> ExitCode {
    Capstan::builder().plugin(WeatherPlugin).plugin(ShoutPlugin).build().main()
}
