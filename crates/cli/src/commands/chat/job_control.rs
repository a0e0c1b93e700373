//! Standing still while the shell has the terminal.

use std::time::Duration;

use rustix::process::{Signal, getpgrp, kill_current_process_group};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{self, SignalKind, signal};

/// How long a stop may be in coming.
const STOP_SIGNAL_TIMEOUT: Duration = Duration::from_millis(500);

/// What stops this process as the shell expects it, and hears that it goes on.
pub(super) struct JobControl {
    resume_signal: Option<unix::Signal>,
}

impl JobControl {
    /// Listens from here on.
    pub(super) fn watch() -> Self {
        Self { resume_signal: signal(SignalKind::from_raw(Signal::CONT.as_raw())).ok() }
    }

    /// Waits until the process goes on after a stop, whoever stopped it.
    pub(super) async fn resume_signal(&mut self) {
        match &mut self.resume_signal {
            Some(resumed) => {
                resumed.recv().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Stops everything that the shell started with this process, as the terminal itself would, until the terminal is its
    /// own again.
    pub(super) async fn suspend(&mut self) -> std::io::Result<()> {
        loop {
            kill_current_process_group(Signal::TSTP)?;
            // Other threads may be stopped before this one is. Where no shell could let it go on, nothing is stopped.
            let was_stopped = tokio::time::timeout(STOP_SIGNAL_TIMEOUT, self.resume_signal()).await.is_ok();
            if !was_stopped || is_foreground() {
                return Ok(());
            }
        }
    }
}

/// Whether the shell has given the terminal to this process, rather than letting it go on in the background.
pub(super) fn is_foreground() -> bool {
    tcgetpgrp(std::io::stdin()).is_ok_and(|front| front == getpgrp())
}
