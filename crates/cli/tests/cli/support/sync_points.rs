//! Synchronization with processes under test.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use capstan_testing::ReplyBarrier;

/// Timeout of a test that would otherwise hang.
pub const TEST_TIMEOUT: Duration = Duration::from_mins(2);

/// Waits until a model reply has reached the barrier.
pub fn wait_for_barrier(barrier: &ReplyBarrier) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let reached = runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, barrier.reached()).await });
    reached.expect("a reply reaches the barrier");
}

/// Creates a named pipe, whose readers block.
pub fn make_pipe(pipe: &Path) {
    assert!(Command::new("mkfifo").arg(pipe).status().expect("mkfifo runs").success());
}

/// Waits for a reader of a named pipe, and blocks it until the returned file is dropped.
pub fn hold_pipe_reader(pipe: &Path) -> File {
    let pipe = pipe.to_owned();
    let (send, opened) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(File::options().write(true).open(pipe)));
    opened.recv_timeout(TEST_TIMEOUT).expect("a reader opens the pipe").expect("a pipe")
}
