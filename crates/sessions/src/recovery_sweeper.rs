//! Sweeps the workspace for orphaned work of dead processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_delivery::{Outbox, ResendWatcher};
use capstan_protocol::TapeName;
use capstan_tape::{StoreError, TapeRepository};

use crate::lifecycle::HostLifecycle;
use crate::recovery::SessionRecovery;
use crate::session_actor::SessionPool;

/// Interval between two sweeps of a running host.
const RECOVERY_SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Sweeps the workspace for orphaned events and messages: once when channels begin to listen, then periodically.
pub struct RecoverySweeper {
    pub(crate) recovery: Arc<SessionRecovery>,
    pub(crate) pool: Arc<SessionPool>,
    pub(crate) outbox: Outbox,
    pub(crate) tapes: TapeRepository,
    pub(crate) lifecycle: HostLifecycle,
    /// The periodic task has started.
    pub(crate) is_started: AtomicBool,
}

impl RecoverySweeper {
    /// Returns true once a sweep has checked every session: session actors need not check for themselves any more.
    pub fn is_sweeping(&self) -> bool {
        self.pool.is_sweeping.load(Ordering::SeqCst)
    }

    /// Starts the periodic sweep, and the watch for messages to send again, once.
    pub fn start(self: &Arc<Self>) {
        if !self.is_started.swap(true, Ordering::SeqCst) {
            self.lifecycle.tasks.spawn(Arc::clone(self).run());
            self.lifecycle.tasks.spawn(Arc::clone(self).replicate());
            self.lifecycle.tasks.spawn(ResendWatcher { outbox: self.outbox.clone() }.run());
        }
    }

    async fn run(self: Arc<Self>) {
        while self.wait_for_next_sweep().await {
            self.sweep().await;
        }
    }

    /// Replicates apart from the sweeps, which must not wait for a tape store that hangs.
    async fn replicate(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.replicate_pending_entries() => {}
                () = self.lifecycle.stop_token.cancelled() => return,
            }
            if !self.wait_for_next_sweep().await {
                return;
            }
        }
    }

    /// Returns false if the host stops.
    async fn wait_for_next_sweep(&self) -> bool {
        let delay = next_sweep_delay(self.recovery.owner.remaining_grace());
        tokio::select! {
            () = tokio::time::sleep(delay) => true,
            () = self.lifecycle.stop_token.cancelled() => false,
        }
    }

    /// Replicates entries that dead processes left in the replication queue, such as those of the fork of a child run.
    async fn replicate_pending_entries(&self) {
        let is_running = || !self.lifecycle.stop_token.is_cancelled();
        if let Err(error) = self.tapes.replicate_pending(is_running).await {
            tracing::warn!(%error, "cannot find the entries to replicate");
        }
    }

    /// Sweeps once. A failure is logged: the next sweep tries again.
    pub async fn sweep(&self) {
        match self.try_sweep().await {
            Ok(()) => self.pool.is_sweeping.store(true, Ordering::SeqCst),
            Err(error) => tracing::error!(%error, "the sweep for orphaned events failed"),
        }
    }

    /// Requests recovery of every session of this workspace with orphaned events, and adopts orphaned messages.
    async fn try_sweep(&self) -> Result<(), StoreError> {
        self.outbox.adopt_orphaned_messages().await?;
        let mut tapes: BTreeMap<TapeName, usize> = BTreeMap::new();
        let mut events = self.tapes.store().in_flight_events(None);
        while let Some(event) = events.next().await? {
            if self.recovery.is_orphaned_event(&event).await? {
                *tapes.entry(event.tape).or_default() += 1;
            }
        }
        for (tape, count) in tapes {
            let record = self.tapes.record(&tape).await?;
            if record.is_some_and(|record| self.recovery.is_workspace_tape(&record))
                && let Ok(reservation) = self.pool.reserve(&tape)
            {
                reservation.request_recovery(count);
            }
        }
        Ok(())
    }
}

/// Delay until the next sweep. While the liveness of processes may be unknown, as in a restored home without lock files,
/// the sweep follows as soon as it is known.
fn next_sweep_delay(remaining_grace: Option<Duration>) -> Duration {
    remaining_grace.map_or(RECOVERY_SWEEP_INTERVAL, |remaining| remaining.min(RECOVERY_SWEEP_INTERVAL))
}

#[cfg(test)]
mod tests {
    use super::{RECOVERY_SWEEP_INTERVAL, next_sweep_delay};
    use crate::ProcessLiveness;
    use std::time::Duration;

    #[test]
    fn x02_a_sweep_follows_as_soon_as_the_owners_of_a_restored_home_are_known() {
        let home = tempfile::tempdir().unwrap();
        // A restored home has no folder of lock files until the host creates it.
        let folder = home.path().join("owners");
        std::fs::create_dir(&folder).unwrap();
        let Ok(created) = std::fs::metadata(&folder).unwrap().created() else { return };
        let processes = ProcessLiveness::open(&folder);
        let old_process = "host-01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(processes.is_alive(old_process), None, "it may create its file again");
        let delay = next_sweep_delay(processes.remaining_grace(created));
        assert!(delay < RECOVERY_SWEEP_INTERVAL, "{delay:?}");
        assert_eq!(processes.remaining_grace(created + delay), None, "then its liveness is known");
        assert_eq!(next_sweep_delay(None), RECOVERY_SWEEP_INTERVAL);
        assert_eq!(next_sweep_delay(Some(Duration::from_hours(1))), RECOVERY_SWEEP_INTERVAL);
    }
}
