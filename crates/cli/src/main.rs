//! The `capstan` binary: Capstan with its built-in plugin only.

use std::process::ExitCode;

/// A turn makes many small, short-lived allocations, often freed on another thread than the one that made them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    capstan::Capstan::builder().build().main()
}
