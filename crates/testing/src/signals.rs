//! Signals to processes, without the `kill` program, which a minimal Debian does not have.

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal, named without its prefix (`INT`, `STOP`), to a process.
///
/// # Panics
///
/// Panics if the name is unknown or the process cannot be signalled.
pub fn send_signal(process: u32, name: &str) {
    let signal = match name {
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        "TSTP" => Signal::TSTP,
        other => panic!("unknown signal {other}"),
    };
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("the process can be signalled");
}
