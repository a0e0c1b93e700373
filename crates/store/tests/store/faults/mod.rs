//! Fault injection: failures of the disk, the clock and other processes.
//!
//! Child processes run this binary again (see [`process`]). Disk failures are injected by a layer that is preloaded
//! into a child process.
#![cfg(target_os = "linux")]

mod busy;
mod clock;
mod durability;
mod fence;
mod files;
mod full;
mod power;
mod process;
mod replaced_content;
mod survivors;
mod workload;
