//! The `capstan` binary: Capstan with its built-in plugin and no other.

use std::process::ExitCode;

/// A turn allocates much that is small and lives briefly, on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    capstan::Capstan::builder().build().main()
}
