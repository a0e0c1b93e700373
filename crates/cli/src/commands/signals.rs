//! Being told to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The ways to be told to end: at the terminal, by closing it, or from a supervisor. None is missed once it is watched.
pub(super) struct TerminationSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl TerminationSignals {
    /// Watches them from here on. One that cannot be watched ends the process as it always did.
    pub(super) fn watch() -> Self {
        let watched = |kind| signal(kind).ok();
        Self {
            interrupt: watched(SignalKind::interrupt()),
            terminate: watched(SignalKind::terminate()),
            hangup: if is_hangup_ignored() { None } else { watched(SignalKind::hangup()) },
        }
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            () = recv_signal(&mut self.interrupt) => {}
            () = recv_signal(&mut self.terminate) => {}
            () = recv_signal(&mut self.hangup) => {}
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

/// Whether whoever started this process, as `nohup` does, had it ignore that its terminal closes.
fn is_hangup_ignored() -> bool {
    const SIGHUP_MASK: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & SIGHUP_MASK != 0)
}
