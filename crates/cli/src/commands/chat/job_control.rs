//! Shell job control: suspending the process group and resuming it.

use std::time::Duration;

use rustix::process::{Signal, getpgrp, kill_current_process_group};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{self, SignalKind, signal};

/// Maximum time between the stop signal and the stop.
const STOP_SIGNAL_TIMEOUT: Duration = Duration::from_millis(500);

/// Stops the process as the shell expects, and observes SIGCONT.
pub(super) struct JobControl {
    resume_signal: Option<unix::Signal>,
}

impl JobControl {
    /// Starts to observe SIGCONT.
    pub(super) fn watch() -> Self {
        Self { resume_signal: signal(SignalKind::from_raw(Signal::CONT.as_raw())).ok() }
    }

    /// Waits for the next SIGCONT, whatever stopped the process.
    pub(super) async fn resume_signal(&mut self) {
        match &mut self.resume_signal {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Stops the whole process group, as the terminal would on ctrl-z, until it is in the foreground again.
    pub(super) async fn suspend(&mut self) -> std::io::Result<()> {
        loop {
            kill_current_process_group(Signal::TSTP)?;
            // The signal may stop other threads first. Without a shell that could resume it (an orphaned process group), the
            // kernel does not stop the process at all.
            let was_stopped = tokio::time::timeout(STOP_SIGNAL_TIMEOUT, self.resume_signal()).await.is_ok();
            if !was_stopped || is_foreground() {
                return Ok(());
            }
        }
    }
}

/// Checks if this process group is the foreground group of the terminal.
pub(super) fn is_foreground() -> bool {
    tcgetpgrp(std::io::stdin()).is_ok_and(|foreground| foreground == getpgrp())
}
