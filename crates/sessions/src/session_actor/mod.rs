//! Session actor: serves one active session, with one turn at a time, under one lease.
//!
//! # Design
//!
//! The first reservation of a session starts its actor; see [`crate::active_sessions`]. The actor receives accepted
//! events, also while a turn runs, and its [`SessionMailbox`] decides about each: it waits for a turn, interrupts the
//! running turn, is offered to the run of that turn (steering), runs concurrently as a command, or is dropped. An actor
//! without work releases its lease and is passivated. [`turns`] has the sequence of a turn.
//!
//! # Invariants
//!
//! - A running turn holds one of the permits that bound the turns of the host. Its session has the lease before it waits for
//!   a permit, so no permit is held while another process works on a session.
//! - A turn and its concurrent commands write under the lease of the session: the fence of the lease guards every commit.
//! - Orphaned events of a session are recovered before its first turn, and get their turns before newer events.
//! - Turns begin in the order of acceptance, across all processes; see [`turn_order`].
//! - The lease is not released while a sender relies on it.
//! - When the host stops, queued events stay in the store for the next start.

mod session_pool;
mod turn_order;
mod turns;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_delivery::QueueOverflow;
use capstan_protocol::{AdmissionMode, Binding, EventKey, Outcome, TapeName};
use capstan_runs::ActiveTurn;
use capstan_tape::{Batch, Fact, Fence, StoreError};
use capstan_turn::{EventArrival, MailboxDecision, SessionActivity, SessionMailbox, TurnError};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use self::session_pool::SessionPool;
use crate::accepted_event::{AcceptedEvent, TurnBatch};
use crate::active_sessions::{SessionInbox, SessionSignal};
use crate::closing::CloseOrder;
use crate::closing::delay_notice::notify_delayed_callers;
use crate::lease::LeaseClaim;

/// Delay before another attempt to recover the events of a session.
const RECOVERY_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of recoveries of a session that fail in a row, before its events are left to the next sweep.
const MAX_FAILED_RECOVERIES: u32 = 5;

/// Maximum number of commands that run concurrently with a turn.
const MAX_CONCURRENT_COMMANDS: usize = 8;

/// Actor of one session. It ends when it has no work.
struct SessionActor {
    pool: Arc<SessionPool>,
    tape: TapeName,
    claim: Arc<LeaseClaim>,
    inbox: SessionInbox,
    mailbox: SessionMailbox<AcceptedEvent>,
    /// Events offered to the run of the current turn.
    offered_events: Vec<AcceptedEvent>,
    activated_at: Instant,
    /// The lease, while this actor holds it.
    fence: Option<Fence>,
    /// The session has been checked for orphaned events, which precedes its first turn.
    is_recovered: bool,
    /// Recovery was requested, and takes place even if there is no turn.
    needs_recovery: bool,
    /// Recoveries that failed since the last successful one.
    failed_recoveries: u32,
    /// A turn is running, or waits for the lease.
    is_in_turn: bool,
    /// Commands that run concurrently with the turn.
    concurrent_commands: JoinSet<()>,
    /// Orders turns of this session that end at the same time.
    close_order: CloseOrder,
    /// Earlier events of other processes that are not waited for any more.
    overdue_events: HashSet<EventKey>,
}

/// State of the actor when it receives a signal.
#[derive(Clone, Copy)]
enum SessionPhase<'a> {
    Idle,
    InTurn(&'a ActiveTurn),
}

impl SessionActor {
    /// Serves the session until it is passivated or the host stops. Queued events of a stopped host stay in the store.
    async fn run(mut self) {
        loop {
            while let Some(event) = self.inbox.try_next_event() {
                self.receive_event(*event, SessionPhase::Idle);
            }
            self.check_recovery_request();
            if self.pool.lifecycle.stop_token.is_cancelled() {
                break;
            }
            let now = self.now();
            self.mailbox.expire_window(now);
            match self.mailbox.next_turn(now).and_then(TurnBatch::new) {
                Some(batch) => {
                    self.enter_turn();
                    Box::pin(self.run_next_turn(batch)).await;
                    self.leave_turn();
                }
                // Boxed, because it is rare and its large future would be part of every actor.
                None if self.needs_recovery => Box::pin(self.recover_without_turn()).await,
                None => {
                    if self.try_passivate().await {
                        return;
                    }
                    self.wait_for_signal().await;
                }
            }
        }
        while self.concurrent_commands.join_next().await.is_some() {}
        self.release_lease().await;
        // Not passivated: a remaining reservation finds the inbox closed, and removes the session.
    }

    fn now(&self) -> Duration {
        self.activated_at.elapsed()
    }

    /// Waits for a signal, the next wakeup of the mailbox, the end of a command, or the stop of the host.
    async fn wait_for_signal(&mut self) {
        let next_wakeup = self.mailbox.next_wakeup().map(|after| self.activated_at + after);
        tokio::select! {
            signal = self.inbox.next_signal() => self.handle_signal(signal, SessionPhase::Idle),
            () = wait_until(next_wakeup) => {}
            Some(_) = self.concurrent_commands.join_next() => {}
            () = self.pool.lifecycle.stop_token.cancelled() => {}
        }
    }

    /// Releases the lease and passivates the session, if it has no work. Returns true if the actor may end.
    async fn try_passivate(&mut self) -> bool {
        if !self.mailbox.is_empty() || self.mailbox.next_wakeup().is_some() || !self.concurrent_commands.is_empty() {
            return false;
        }
        if self.fence.is_some() {
            if !self.pool.sessions.begin_release(&self.tape) {
                return false;
            }
            self.release_lease().await;
            self.pool.sessions.end_release(&self.tape);
        }
        self.pool.sessions.passivate(&self.tape)
    }

    async fn release_lease(&mut self) {
        if self.fence.take().is_some() {
            let batch = Batch { facts: vec![self.claim.release_fact()], ..Batch::new() };
            if let Err(error) = self.pool.tapes.store().commit(batch).await {
                // The lease is void as soon as the claim is dropped.
                tracing::warn!(tape = %self.tape, %error, "cannot release the lease of a session");
            }
        }
    }

    fn handle_signal(&mut self, signal: SessionSignal, phase: SessionPhase<'_>) {
        match signal {
            SessionSignal::Event(event) => self.receive_event(*event, phase),
            SessionSignal::Wake => self.check_recovery_request(),
        }
    }

    fn check_recovery_request(&mut self) {
        if self.pool.sessions.take_recovery_request(&self.tape) {
            self.is_recovered = false;
            self.needs_recovery = true;
        }
    }

    /// Receives an event, and the lease if the commit of the event acquired it. The mailbox decides about the event.
    fn receive_event(&mut self, mut event: AcceptedEvent, phase: SessionPhase<'_>) {
        self.fence = event.lease.take().or(self.fence.take());
        let (activity, arrival) = match phase {
            SessionPhase::Idle => (SessionActivity::Idle, event.arrival),
            SessionPhase::InTurn(active) => (SessionActivity::Busy, effective_arrival(active, &event)),
        };
        let now = self.now();
        match self.mailbox.admit(event, &arrival, activity, now) {
            MailboxDecision::Wait => {}
            MailboxDecision::Interrupt => {
                if let SessionPhase::InTurn(active) = phase {
                    active.is_interrupted.store(true, Ordering::SeqCst);
                    active.cancel_token.cancel();
                }
            }
            MailboxDecision::Steer(event) => {
                let rejected = match phase {
                    SessionPhase::InTurn(active) => self.offer_to_run(active, event),
                    SessionPhase::Idle => Some(event),
                };
                self.mailbox.requeue(rejected.into_iter().collect(), |event| event.entry);
            }
            MailboxDecision::RunConcurrently(event) => match &self.fence {
                Some(fence) if self.concurrent_commands.len() < MAX_CONCURRENT_COMMANDS => {
                    self.start_concurrent_command(event, fence.clone());
                }
                // Queued for a turn of its own, like other commands.
                _ => self.mailbox.push_back(event),
            },
            MailboxDecision::Drop(event) => self.drop_event(event),
        }
        self.pool.sessions.record_received(&self.tape, self.is_in_turn || self.mailbox.is_ready());
    }

    /// Marks the session as busy: events that arrive from now on arrive during a turn.
    fn enter_turn(&mut self) {
        self.is_in_turn = true;
        self.pool.sessions.mark_busy(&self.tape);
    }

    /// Ends the busy state of the last turn; the session stays busy if another turn can begin.
    fn leave_turn(&mut self) {
        self.is_in_turn = false;
        self.pool.sessions.end_turn(&self.tape, self.mailbox.is_ready());
    }

    /// Drops an event that turned out not to be addressed to the bot, in a task of its own: a running turn does not wait
    /// for the commit.
    fn drop_event(&self, event: AcceptedEvent) {
        let pool = Arc::clone(&self.pool);
        self.pool.lifecycle.tasks.spawn(async move {
            let settle = Fact::SettleEvent { key: event.key.clone(), outcome: Outcome::Dropped, run_id: None };
            match pool.closer.commit_with_retry(Batch { facts: vec![settle], ..Batch::new() }).await {
                Ok(_) => {
                    let delivery = event.into_settled(Outcome::Dropped, None);
                    pool.outbox.enqueue(delivery, QueueOverflow::GiveUp);
                }
                Err(error) => tracing::error!(%error, "cannot record that an event was dropped"),
            }
        });
    }

    /// Acquires the lease unless the actor holds it, and receives events meanwhile. Fails when another process holds the
    /// session for too long; returns `None` when the host stops first.
    async fn ensure_lease(&mut self) -> Result<Option<Fence>, TurnError> {
        if let Some(fence) = &self.fence {
            return Ok(Some(fence.clone()));
        }
        let (pool, claim) = (Arc::clone(&self.pool), Arc::clone(&self.claim));
        let acquired = pool.leases.wait_for_lease(&claim, &pool.lifecycle.cancel_token);
        tokio::pin!(acquired);
        let fence = loop {
            tokio::select! {
                fence = &mut acquired => break fence?,
                signal = self.inbox.next_signal() => self.handle_signal(signal, SessionPhase::Idle),
                () = pool.lifecycle.stop_token.cancelled() => return Ok(None),
            }
        };
        // The lease was not free when the event was accepted: its former holder may have died.
        self.is_recovered = false;
        self.fence = Some(fence.clone());
        Ok(Some(fence))
    }

    /// Acquires the permit of a turn, and receives events meanwhile. Fails when all runs are cancelled; returns `None`
    /// when the host stops first.
    async fn acquire_turn_permit(&mut self) -> Result<Option<OwnedSemaphorePermit>, TurnError> {
        let pool = Arc::clone(&self.pool);
        // The semaphore is never closed, so an error means that no permit is free.
        if let Ok(permit) = Arc::clone(&pool.turn_permits).try_acquire_owned() {
            return Ok(Some(permit));
        }
        let acquired = Arc::clone(&pool.turn_permits).acquire_owned();
        tokio::pin!(acquired);
        loop {
            tokio::select! {
                permit = &mut acquired => return Ok(permit.ok()),
                signal = self.inbox.next_signal() => self.handle_signal(signal, SessionPhase::Idle),
                () = pool.lifecycle.stop_token.cancelled() => return Ok(None),
                () = pool.lifecycle.cancel_token.cancelled() => return Err(TurnError::Cancelled),
            }
        }
    }

    /// Recovers orphaned events although no new event needs a turn.
    async fn recover_without_turn(&mut self) {
        self.needs_recovery = false;
        match self.ensure_lease().await {
            Ok(Some(fence)) => self.recover(&fence).await,
            Ok(None) => {}
            Err(error) => {
                tracing::info!(tape = %self.tape, %error, "the recovery of a session is postponed");
                // Callers in this process wait for the events of a lost turn.
                if !self.pool.recovery.unserved_events.is_empty() {
                    self.wait_before_retry().await;
                    self.needs_recovery = true;
                }
            }
        }
    }

    async fn recover(&mut self, fence: &Fence) {
        self.is_recovered = true;
        self.needs_recovery = false;
        match self.pool.recovery.recover_session(&self.tape, fence).await {
            Ok(mut batches) => {
                self.failed_recoveries = 0;
                // There may be fewer slots than events. The last events get them first, because the first ones leave the
                // queue soon.
                let last_first = batches.iter_mut().flatten().rev();
                for (event, slot) in last_first.zip(self.pool.sessions.take_recovery_slots(&self.tape)) {
                    event.slot = Some(slot);
                }
                for events in batches {
                    self.mailbox.insert_turn(events, |event| event.entry);
                }
            }
            Err(error) => {
                tracing::error!(tape = %self.tape, %error, "cannot recover the orphaned events of a session");
                let was_fenced = matches!(error, StoreError::Fenced { .. });
                if was_fenced {
                    self.fence = None;
                } else {
                    self.failed_recoveries = self.failed_recoveries.saturating_add(1);
                }
                // After a permanent failure the session serves its other events, and the next sweep tries again.
                if was_fenced || (error.is_transient() && self.may_retry_recovery()) {
                    self.is_recovered = false;
                    self.needs_recovery = true;
                    if !was_fenced {
                        // The callers of queued events would wait for as long as the store fails.
                        notify_delayed_callers(&self.pool.outbox, self.mailbox.iter_mut(), &error.into());
                    }
                    self.wait_before_retry().await;
                }
            }
        }
    }

    /// Returns true while a failed recovery is repeated here. Without a sweep, the callers of lost turns depend on it.
    fn may_retry_recovery(&self) -> bool {
        let has_sweeps = self.pool.is_sweeping.load(Ordering::SeqCst);
        self.failed_recoveries < MAX_FAILED_RECOVERIES || !(has_sweeps || self.pool.recovery.unserved_events.is_empty())
    }

    /// Waits before another attempt to recover the session, or until the host stops.
    async fn wait_before_retry(&self) {
        tokio::select! {
            () = tokio::time::sleep(RECOVERY_RETRY_DELAY) => {}
            () = self.pool.lifecycle.stop_token.cancelled() => {}
        }
    }
}

/// Returns the arrival of an event during this turn: an event under another binding or under none, or of another origin,
/// does not interrupt the turn.
fn effective_arrival(active: &ActiveTurn, event: &AcceptedEvent) -> EventArrival {
    let id = |binding: &Option<Arc<Binding>>| binding.as_ref().map(|binding| binding.binding_id.clone());
    let event_binding = id(&event.binding);
    let is_other_binding = event_binding.is_none() || event_binding != id(&active.binding);
    let is_other_origin = event.inbound.origin() != active.origin;
    if event.arrival.mode == AdmissionMode::Interrupt && (is_other_binding || is_other_origin) {
        return EventArrival { mode: AdmissionMode::FollowUp, ..event.arrival };
    }
    event.arrival
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
