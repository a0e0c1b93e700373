//! Sweeps the workspace for orphaned work of dead processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_delivery::Outbox;
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

    /// Starts the periodic sweep, once.
    pub fn start(self: &Arc<Self>) {
        if !self.is_started.swap(true, Ordering::SeqCst) {
            self.lifecycle.tasks.spawn(Arc::clone(self).run());
        }
    }

    async fn run(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(RECOVERY_SWEEP_INTERVAL) => {}
                () = self.lifecycle.stop_token.cancelled() => return,
            }
            self.sweep().await;
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
