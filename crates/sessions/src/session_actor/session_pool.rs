//! Pool of session actors.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_delivery::{ChannelDirectory, Outbox};
use capstan_policy::BindingStore;
use capstan_protocol::{Clock, TapeName};
use capstan_runs::Orchestrator;
use capstan_tape::TapeRepository;
use capstan_turn::{SessionMailbox, TurnPipeline};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::SessionActor;
use crate::HostError;
use crate::active_sessions::{ActiveSessions, SessionInbox, SessionReservation};
use crate::closing::TurnCloser;
use crate::lease_keeper::LeaseKeeper;
use crate::lifecycle::HostLifecycle;
use crate::recovery::SessionRecovery;

/// Starts session actors on demand, and has the components that they work with.
pub(crate) struct SessionPool {
    pub(crate) sessions: ActiveSessions,
    /// Maximum number of queued events of one session.
    pub(crate) max_queued_events: usize,
    /// Permits of running turns, granted in order of arrival.
    pub(crate) turn_permits: Arc<Semaphore>,
    pub(crate) lifecycle: HostLifecycle,
    pub(crate) leases: LeaseKeeper,
    pub(crate) bindings: Arc<BindingStore>,
    pub(crate) recovery: Arc<SessionRecovery>,
    pub(crate) turn_pipeline: Arc<TurnPipeline<Orchestrator>>,
    pub(crate) channels: ChannelDirectory,
    pub(crate) closer: Arc<TurnCloser>,
    pub(crate) outbox: Outbox,
    pub(crate) tapes: TapeRepository,
    pub(crate) clock: Clock,
    /// A sweep has checked every session, and further sweeps follow periodically.
    pub(crate) is_sweeping: AtomicBool,
}

impl SessionPool {
    /// Reserves a session, and starts its actor if it has none.
    pub(crate) fn reserve(self: &Arc<Self>, tape: &TapeName) -> Result<SessionReservation, HostError> {
        let lifecycle = &self.lifecycle;
        if lifecycle.stop_token.is_cancelled() {
            return Err(HostError::Stopping);
        }
        let start_actor = |inbox: SessionInbox| {
            let claim = Arc::new(self.leases.owner.claim(tape));
            let actor = SessionActor {
                pool: Arc::clone(self),
                tape: tape.clone(),
                claim: Arc::clone(&claim),
                inbox,
                mailbox: SessionMailbox::default(),
                offered_events: Vec::new(),
                activated_at: Instant::now(),
                fence: None,
                // A sweeping host has checked every session, and checks again. A lease acquired together with an event
                // was free, so no process died while it held the lease.
                is_recovered: self.is_sweeping.load(Ordering::SeqCst),
                needs_recovery: false,
                failed_recoveries: 0,
                is_in_turn: false,
                concurrent_commands: JoinSet::new(),
                close_order: Arc::default(),
                overdue_events: HashSet::new(),
            };
            lifecycle.tasks.spawn(lifecycle.session_tasks.track_future(actor.run()));
            claim
        };
        Ok(self.sessions.reserve(tape, self.max_queued_events, start_actor))
    }
}
