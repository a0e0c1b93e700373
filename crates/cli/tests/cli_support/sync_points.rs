//! Waiting for a process to come to a certain point.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use capstan_testing::ReplyBarrier;

/// No assertion: it only ends a test that would hang.
pub const TEST_TIMEOUT: Duration = Duration::from_mins(2);

/// Waits until an answer of the model stands at the gate.
pub fn wait_for_gate(gate: &ReplyBarrier) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let reached = runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, gate.reached()).await });
    reached.expect("an answer comes to the gate");
}

/// Makes a pipe: whoever reads from it waits.
pub fn make_pipe(pipe: &Path) {
    assert!(Command::new("mkfifo").arg(pipe).status().expect("mkfifo runs").success());
}

/// Waits until somebody reads from a pipe, who then waits until what is given is dropped.
pub fn hold_pipe_reader(pipe: &Path) -> File {
    let pipe = pipe.to_owned();
    let (send, opened) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(File::options().write(true).open(pipe)));
    opened.recv_timeout(TEST_TIMEOUT).expect("a reader comes").expect("a pipe")
}
