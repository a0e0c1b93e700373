//! What the database does when the disk, the clock or another process fails it.
//!
//! Other processes are this binary again: see [`process`]. The disk fails by a layer that is loaded into one of them.
#![cfg(target_os = "linux")]

mod busy;
mod clock;
mod fence;
mod full;
mod power;
mod process;
mod promises;
#[path = "../support/mod.rs"]
mod support;
mod survivors;
mod workload;
