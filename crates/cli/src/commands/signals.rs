//! Termination signals.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that ends a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminationSignal {
    /// SIGINT: ctrl-c at a terminal.
    Interrupt,
    /// SIGTERM or SIGHUP.
    Terminate,
}

/// SIGINT, SIGTERM and SIGHUP: from the terminal, a supervisor, or a closing terminal. No signal is missed after
/// [`TerminationSignals::watch`].
pub(super) struct TerminationSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl TerminationSignals {
    /// Installs the handlers. A signal whose handler cannot be installed keeps its default action.
    pub(super) fn watch() -> Self {
        let handle = |kind| signal(kind).ok();
        Self {
            interrupt: handle(SignalKind::interrupt()),
            terminate: handle(SignalKind::terminate()),
            hangup: if is_hangup_ignored() { None } else { handle(SignalKind::hangup()) },
        }
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> TerminationSignal {
        tokio::select! {
            () = recv_signal(&mut self.interrupt) => TerminationSignal::Interrupt,
            () = recv_signal(&mut self.terminate) => TerminationSignal::Terminate,
            () = recv_signal(&mut self.hangup) => TerminationSignal::Terminate,
        }
    }
}

async fn recv_signal(signals: &mut Option<Signal>) {
    match signals {
        Some(signals) => {
            signals.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Checks if the process was started with SIGHUP ignored, as by `nohup`.
fn is_hangup_ignored() -> bool {
    const SIGHUP_MASK: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & SIGHUP_MASK != 0)
}
