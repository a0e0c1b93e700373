//! The `capstan` binary: Capstan with its built-in plugin and no other.

use std::process::ExitCode;

fn main() -> ExitCode {
    capstan::Capstan::builder().build().main()
}
