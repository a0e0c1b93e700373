//! Waiting for a process to come to a certain point.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use capstan_testing::Gate;

/// No assertion: it only ends a test that would hang.
pub const TOO_LONG: Duration = Duration::from_mins(2);

/// Waits until an answer of the model stands at the gate.
pub fn wait_for(gate: &Gate) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let reached = runtime.block_on(async { tokio::time::timeout(TOO_LONG, gate.reached()).await });
    reached.expect("an answer comes to the gate");
}

/// Makes a pipe: whoever reads from it waits.
pub fn make_pipe(pipe: &Path) {
    assert!(Command::new("mkfifo").arg(pipe).status().expect("mkfifo runs").success());
}

/// Waits until somebody reads from a pipe, who then waits until what is given is dropped.
pub fn hold_reader_of(pipe: &Path) -> File {
    let pipe = pipe.to_owned();
    let (send, opened) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(File::options().write(true).open(pipe)));
    opened.recv_timeout(TOO_LONG).expect("a reader comes").expect("a pipe")
}
