//! Process 1 of a container: runs the host in a child process, forwards signals to it, and reaps orphans.
//!
//! Orphaned processes become children of process 1, which has to wait for them; otherwise they stay in the process table as
//! zombies. The host must not reap them itself: waiting for any child would take the exit status of a command away from the
//! tool that runs it.

use std::io;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

/// Exit code of a process that a signal ended is this plus the number of the signal, as in a shell.
const SIGNAL_EXIT_BASE: i32 = 128;

/// Returns true if this process is the init process of its container.
pub(crate) fn is_init_process() -> bool {
    std::process::id() == 1
}

/// Runs this command line in a child process, forwards termination signals to it, and reaps every process that ends.
/// Returns the exit code of the child.
pub(crate) fn run_as_init() -> io::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before the child starts, so that no signal is missed.
        let mut child_signal = signal(SignalKind::child())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // A terminal sends ctrl-c to the child too, but a hangup only to the leader of the session, which is this process.
        let has_terminal = std::fs::File::open("/dev/tty").is_ok();
        let child = Command::new(std::env::current_exe()?).args(std::env::args_os().skip(1)).spawn()?;
        let child = Pid::from_child(&child);
        loop {
            let forwarded = tokio::select! {
                _ = child_signal.recv() => None,
                _ = terminate.recv() => Some(Signal::TERM),
                _ = hangup.recv() => Some(Signal::HUP),
                _ = interrupt.recv(), if !has_terminal => Some(Signal::INT),
            };
            if let Some(forwarded) = forwarded
                && let Err(error) = kill_process(child, forwarded)
            {
                tracing::warn!(%error, "cannot forward a signal to the host");
            }
            if let Some(status) = reap_ended_processes(child) {
                return Ok(exit_code(status));
            }
        }
    })
}

/// Reaps all processes that have ended, and returns the status of the child if it is among them.
fn reap_ended_processes(child: Pid) -> Option<WaitStatus> {
    let mut child_status = None;
    // An error means that there are no children.
    while let Ok(Some((ended, status))) = wait(WaitOptions::NOHANG) {
        if ended == child {
            child_status = Some(status);
        }
    }
    child_status
}

fn exit_code(status: WaitStatus) -> ExitCode {
    let signalled = || status.terminating_signal().map(|number| SIGNAL_EXIT_BASE + number);
    let code = status.exit_status().or_else(signalled);
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
