//! A session that is awake: one turn at a time, under one lease, and what comes meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_delivery::Outbox;
use capstan_protocol::{AdmissionMode, Binding, Clock, Outcome, TapeName};
use capstan_runs::{ActiveTurn, BindingResolver, Journal, OfferedEvent, Steering};
use capstan_tape::{Batch, Fact, Fence, TapeRepository};
use capstan_turn::{EventArrival, MailboxDecision, SessionActivity, SessionMailbox, TurnError};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::accepted_event::{AcceptedEvent, TurnBatch};
use crate::active_sessions::{ActiveSessions, SessionInbox, SessionSignal, SessionStart};
use crate::closing::delay_notice::notify_delayed_callers;
use crate::closing::{CloseOrder, FinishedTurn, TurnCloser};
use crate::lease::LeaseClaim;
use crate::lease_keeper::LeaseKeeper;
use crate::lifecycle::HostLifecycle;
use crate::recovery::SessionRecovery;
use crate::running_turns::RunningTurns;
use crate::turn_executor::TurnExecutor;

/// Components that every session actor works with.
pub(crate) struct SessionParts {
    pub(crate) sessions: ActiveSessions,
    pub(crate) running_turns: RunningTurns,
    pub(crate) lifecycle: HostLifecycle,
    pub(crate) leases: LeaseKeeper,
    pub(crate) bindings: BindingResolver,
    pub(crate) recovery: Arc<SessionRecovery>,
    pub(crate) executor: TurnExecutor,
    pub(crate) closer: Arc<TurnCloser>,
    pub(crate) outbox: Outbox,
    pub(crate) tapes: TapeRepository,
    pub(crate) clock: Clock,
    /// A sweep has looked at every session, and looks again periodically.
    pub(crate) is_sweeping: AtomicBool,
}

/// How many turns may go on beside one.
const MAX_CONCURRENT_COMMANDS: usize = 8;

/// The lane of one session. It ends when nothing is left to do.
pub(crate) struct SessionActor {
    parts: Arc<SessionParts>,
    tape: TapeName,
    claim: Arc<LeaseClaim>,
    inbox: SessionInbox,
    mailbox: SessionMailbox<AcceptedEvent>,
    /// Events offered to the run of the current turn.
    offered_events: Vec<AcceptedEvent>,
    activated_at: Instant,
    /// The lease, while this lane holds it.
    fence: Option<Fence>,
    /// What dead processes left on this session was looked for. That is done before the first turn.
    is_recovered: bool,
    /// Somebody wants that done although there is no turn.
    needs_recovery: bool,
    /// A turn is going on, or waits for the lease.
    is_in_turn: bool,
    /// Turns beside the one that is going on.
    concurrent_commands: JoinSet<()>,
    /// Where turns wait that end at the same time.
    close_order: CloseOrder,
}

/// What goes on while something is heard.
#[derive(Clone, Copy)]
enum SessionPhase<'a> {
    Idle,
    InTurn(&'a ActiveTurn),
}

impl SessionActor {
    pub(crate) fn new(parts: Arc<SessionParts>, start: SessionStart) -> Self {
        // A host that sweeps has looked at every session, and looks again; a lease that came with an event was free, so
        // nobody died under it.
        let is_recovered = parts.is_sweeping.load(Ordering::SeqCst);
        Self {
            parts,
            tape: start.tape,
            claim: start.claim,
            inbox: start.inbox,
            mailbox: SessionMailbox::default(),
            offered_events: Vec::new(),
            activated_at: Instant::now(),
            fence: None,
            is_recovered,
            needs_recovery: false,
            is_in_turn: false,
            concurrent_commands: JoinSet::new(),
            close_order: Arc::default(),
        }
    }

    /// Works until there is nothing left to do, or the host stops: then what waits stays on disk.
    pub(crate) async fn run(mut self) {
        loop {
            while let Some(arrived) = self.inbox.try_next_event() {
                self.receive_event(*arrived, SessionPhase::Idle);
            }
            self.check_recovery_request();
            if self.parts.lifecycle.stop_token.is_cancelled() {
                break;
            }
            let now = self.now();
            self.mailbox.expire_window(now);
            match self.mailbox.next_turn(now).and_then(TurnBatch::new) {
                Some(group) => {
                    self.enter_turn();
                    Box::pin(self.run_next_turn(group)).await;
                    self.leave_turn();
                }
                // Seldom done and large, so it does not make every lane large.
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
        // Not asleep but gone: whoever still holds a reservation hears that nobody listens.
    }

    fn now(&self) -> Duration {
        self.activated_at.elapsed()
    }

    /// Waits until something happens.
    async fn wait_for_signal(&mut self) {
        let look_again = self.mailbox.next_wakeup().map(|after| self.activated_at + after);
        tokio::select! {
            heard = self.inbox.next_signal() => self.handle_signal(heard, SessionPhase::Idle),
            () = wait_until(look_again) => {}
            Some(_) = self.concurrent_commands.join_next() => {}
            () = self.parts.lifecycle.stop_token.cancelled() => {}
        }
    }

    /// Whether the lane may end.
    async fn try_passivate(&mut self) -> bool {
        if !self.mailbox.is_empty() || self.mailbox.next_wakeup().is_some() || !self.concurrent_commands.is_empty() {
            return false;
        }
        if self.fence.is_some() {
            if !self.parts.sessions.begin_release(&self.tape) {
                return false;
            }
            self.release_lease().await;
            self.parts.sessions.end_release(&self.tape);
        }
        self.parts.sessions.passivate(&self.tape)
    }

    async fn release_lease(&mut self) {
        if self.fence.take().is_some() {
            let batch = Batch { facts: vec![self.claim.release_fact()], ..Batch::new() };
            if let Err(error) = self.parts.tapes.store().commit(batch).await {
                // It is void as soon as this claim is dropped.
                tracing::warn!(tape = %self.tape, %error, "a lease could not be given back");
            }
        }
    }

    fn handle_signal(&mut self, heard: SessionSignal, during: SessionPhase<'_>) {
        match heard {
            SessionSignal::Event(event) => self.receive_event(*event, during),
            SessionSignal::Wake => self.check_recovery_request(),
        }
    }

    fn check_recovery_request(&mut self) {
        if self.parts.sessions.take_recovery_request(&self.tape) {
            self.is_recovered = false;
            self.needs_recovery = true;
        }
    }

    /// Takes an event in, perhaps with the lease.
    fn receive_event(&mut self, mut event: AcceptedEvent, during: SessionPhase<'_>) {
        self.fence = event.lease.take().or(self.fence.take());
        self.admit(event, during);
        self.parts.sessions.record_received(&self.tape, self.is_in_turn || self.mailbox.is_ready());
    }

    /// What comes from now on comes during a turn.
    fn enter_turn(&mut self) {
        self.is_in_turn = true;
        self.parts.sessions.set_busy(&self.tape, true);
    }

    /// What comes from now on does not come during the turn that was.
    fn leave_turn(&mut self) {
        self.is_in_turn = false;
        self.parts.sessions.set_busy(&self.tape, self.mailbox.is_ready());
    }

    fn admit(&mut self, item: AcceptedEvent, during: SessionPhase<'_>) {
        let session = match during {
            SessionPhase::Idle => SessionActivity::Idle,
            SessionPhase::InTurn(_) => SessionActivity::Busy,
        };
        let arrival = match during {
            SessionPhase::InTurn(active) => effective_arrival(active, &item),
            SessionPhase::Idle => item.arrival,
        };
        let now = self.now();
        match self.mailbox.admit(item, &arrival, session, now) {
            MailboxDecision::Wait => {}
            MailboxDecision::Interrupt => {
                if let SessionPhase::InTurn(active) = during {
                    active.is_interrupted.store(true, Ordering::SeqCst);
                    active.cancel_token.cancel();
                }
            }
            MailboxDecision::Steer(item) => {
                let rejected = match during {
                    SessionPhase::InTurn(active) => self.offer_to_run(active, item),
                    SessionPhase::Idle => Some(item),
                };
                self.mailbox.requeue(rejected.into_iter().collect(), |item| item.entry);
            }
            MailboxDecision::RunConcurrently(item) => match &self.fence {
                Some(fence) if self.concurrent_commands.len() < MAX_CONCURRENT_COMMANDS => {
                    self.start_concurrent_command(item, fence.clone());
                }
                // It waits its turn, as other commands do.
                _ => self.mailbox.push_back(item),
            },
            MailboxDecision::Drop(item) => self.drop_event(item),
        }
    }

    /// Lets an event go that turned out not to be meant for the bot. The turn that goes on does not wait for it.
    fn drop_event(&self, item: AcceptedEvent) {
        let parts = Arc::clone(&self.parts);
        self.parts.lifecycle.tasks.spawn(async move {
            let settle = Fact::SettleEvent { key: item.key.clone(), outcome: Outcome::Dropped, run_id: None };
            match parts.closer.commit_with_retry(Batch { facts: vec![settle], ..Batch::new() }).await {
                Ok(_) => parts.outbox.enqueue_or_give_up(item.into_settled(Outcome::Dropped, None)),
                Err(error) => tracing::error!(%error, "an event could not be let go"),
            }
        });
    }

    /// Makes sure of the lease; meanwhile others may come. Fails when another process works on the session for too
    /// long, and gives nothing when the host stops first.
    async fn ensure_lease(&mut self) -> Result<Option<Fence>, TurnError> {
        if let Some(fence) = &self.fence {
            return Ok(Some(fence.clone()));
        }
        let (parts, claim) = (Arc::clone(&self.parts), Arc::clone(&self.claim));
        let taken = parts.leases.wait_for_lease(&claim, &parts.lifecycle.cancel_token);
        tokio::pin!(taken);
        let fence = loop {
            tokio::select! {
                fence = &mut taken => break fence?,
                heard = self.inbox.next_signal() => self.handle_signal(heard, SessionPhase::Idle),
                () = parts.lifecycle.stop_token.cancelled() => return Ok(None),
            }
        };
        // It was not free when the event was accepted: whoever had it may have died.
        self.is_recovered = false;
        self.fence = Some(fence.clone());
        Ok(Some(fence))
    }

    /// Takes up what dead processes left, though nothing new has come.
    async fn recover_without_turn(&mut self) {
        self.needs_recovery = false;
        match self.ensure_lease().await {
            Ok(Some(fence)) => self.recover(&fence).await,
            Ok(None) => {}
            Err(error) => {
                tracing::info!(tape = %self.tape, %error, "what a dead process left is not taken up now");
            }
        }
    }

    async fn recover(&mut self, fence: &Fence) {
        self.is_recovered = true;
        self.needs_recovery = false;
        match self.parts.recovery.recover_session(&self.tape, fence).await {
            Ok(mut groups) => {
                // There may be fewer places: who is first in line needs none for long.
                let last_first = groups.iter_mut().flatten().rev();
                for (item, seat) in last_first.zip(self.parts.sessions.take_recovery_slots(&self.tape)) {
                    item.slot = Some(seat);
                }
                for items in groups.into_iter().rev() {
                    self.mailbox.push_front(items);
                }
            }
            Err(error) => tracing::error!(tape = %self.tape, %error, "what a dead process left could not be taken up"),
        }
    }

    /// Takes events through a turn, with whatever comes meanwhile.
    async fn run_next_turn(&mut self, group: TurnBatch) {
        let fence = match self.ensure_lease().await {
            Ok(Some(fence)) => fence,
            // It waits on disk, for the next start.
            Ok(None) => return self.mailbox.push_front(group.into_events()),
            Err(error) => return Box::pin(self.parts.closer.settle_without_turn(group, &self.tape, error)).await,
        };
        if !self.is_recovered {
            // What was left is older, and goes first.
            self.mailbox.push_front(group.into_events());
            return Box::pin(self.recover(&fence)).await;
        }
        let mut parts = group.split_by_binding(&self.parts.bindings).await.into_iter();
        let Some(mut group) = parts.next() else { return };
        for deferred in parts.rev() {
            self.mailbox.push_front(deferred.into_events());
        }
        let active = match &group.binding {
            Ok(binding) => self.start_turn(&group, fence, binding.clone()),
            Err(error) => {
                let error = error.clone();
                return self.parts.closer.settle_without_turn(group, &self.tape, error).await;
            }
        };
        group.release_slots();
        let parts = Arc::clone(&self.parts);
        let mut report = {
            let _going_on = parts.running_turns.register(&self.tape, active.cancel_token.clone());
            let turn = parts.executor.run_turn(&group, &active);
            tokio::pin!(turn);
            loop {
                tokio::select! {
                    report = &mut turn => break report,
                    heard = self.inbox.next_signal() => self.handle_signal(heard, SessionPhase::InTurn(&active)),
                    Some(_) = self.concurrent_commands.join_next() => {}
                }
            }
        };
        if active.is_interrupted.load(Ordering::SeqCst) && matches!(report.result, Err(TurnError::Cancelled)) {
            report.notice = None;
        }
        let ingested = self.close_steering(&active);
        // Whoever hears the answer may send something at once: it does not come during this turn.
        self.leave_turn();
        let is_last = self.mailbox.is_empty() && self.concurrent_commands.is_empty();
        let releases = is_last && parts.sessions.begin_release(&self.tape);
        let lease = if releases { self.claim.release_fact() } else { parts.leases.renewal_fact(&self.claim) };
        let (trouble, troubled) = oneshot::channel();
        let mut finished = FinishedTurn {
            batch: group,
            ingested,
            tape: self.tape.clone(),
            report,
            journal: Some(active.journal),
            store_failure: Some(trouble),
            close_order: Some(Arc::clone(&self.close_order)),
        };
        let closed = {
            let closing = parts.closer.close_turn(&mut finished, Some(lease));
            tokio::pin!(closing);
            tokio::select! {
                closed = &mut closing => closed,
                // It goes on for as long as the store fails: whoever waits behind it must not wait for that.
                Ok(error) = troubled => {
                    notify_delayed_callers(&parts.outbox, self.mailbox.iter_mut(), &error.into());
                    closing.await
                }
            }
        };
        if releases || matches!(&closed, Ok(close) if close.was_fenced) {
            self.fence = None;
        }
        let chats = closed.map(|close| parts.closer.deliver_closed(finished, close));
        if releases {
            parts.sessions.end_release(&self.tape);
        }
        match chats {
            Ok(chats) => parts.outbox.wait_for_capacity(&chats).await,
            Err(error) => tracing::error!(tape = %self.tape, %error, "the end of a turn could not be written"),
        }
    }

    /// Offers an event to the run of a turn; returns it when the run is over.
    fn offer_to_run(&mut self, active: &ActiveTurn, mut event: AcceptedEvent) -> Option<AcceptedEvent> {
        let offered = OfferedEvent {
            inbound: event.inbound.clone(),
            key: event.key.clone(),
            session: event.session.clone(),
            own_binding: event.own_binding.clone(),
        };
        match active.steering.offer(offered, event.slot.take()) {
            Ok(()) => {
                self.offered_events.push(event);
                None
            }
            Err(slot) => Some(AcceptedEvent { slot, ..event }),
        }
    }

    /// Ends the steering of a turn: returns the events that its run ingested, and queues the others again.
    fn close_steering(&mut self, active: &ActiveTurn) -> Vec<AcceptedEvent> {
        let outcome = active.steering.close();
        let (ingested, mut remaining): (Vec<_>, Vec<_>) = std::mem::take(&mut self.offered_events)
            .into_iter()
            .partition(|event| outcome.ingested.contains(&event.key));
        for (key, slot) in outcome.remaining {
            if let Some(event) = remaining.iter_mut().find(|event| event.key == key) {
                event.slot = slot;
            }
        }
        self.mailbox.requeue(remaining, |event| event.entry);
        ingested
    }

    fn start_turn(&self, batch: &TurnBatch, fence: Fence, binding: Option<Arc<Binding>>) -> ActiveTurn {
        let parts = &self.parts;
        let (clock, tasks) = (parts.clock.clone(), parts.lifecycle.tasks.clone());
        ActiveTurn {
            journal: Arc::new(Journal::new(parts.tapes.clone(), self.tape.clone(), fence, clock, tasks)),
            cancel_token: self.parts.lifecycle.cancel_token.child_token(),
            steering: Arc::new(Steering::default()),
            binding,
            begins_after: batch.newest_entry(),
            events: batch.events().map(|event| (event.key.clone(), event.message_entry)).collect(),
            is_interrupted: AtomicBool::new(false),
        }
    }

    /// Begins a turn beside the one that is going on, under the same lease.
    fn start_concurrent_command(&mut self, item: AcceptedEvent, fence: Fence) {
        let mut batch = TurnBatch::from_event(item);
        batch.release_slots();
        let mut active = self.start_turn(&batch, fence, None);
        let (parts, tape, close_order) = (Arc::clone(&self.parts), self.tape.clone(), Arc::clone(&self.close_order));
        self.concurrent_commands.spawn(async move {
            active.binding = match batch.lead.resolve_binding(&parts.bindings).await {
                Ok(binding) => binding,
                Err(error) => return parts.closer.settle_without_turn(batch, &tape, error).await,
            };
            let report = parts.executor.run_turn(&batch, &active).await;
            let mut finished = FinishedTurn {
                batch,
                // Commands that run concurrently are offered no events.
                ingested: Vec::new(),
                tape,
                report,
                journal: Some(active.journal),
                store_failure: None,
                close_order: Some(close_order),
            };
            match parts.closer.close_turn(&mut finished, None).await {
                Ok(close) => {
                    let chats = parts.closer.deliver_closed(finished, close);
                    parts.outbox.wait_for_capacity(&chats).await;
                }
                Err(error) => tracing::error!(%error, "the end of a turn beside another could not be written"),
            }
        });
    }
}

/// Returns how an event is admitted that arrives during this turn: one that is served under another binding, or under
/// none, does not end it.
fn effective_arrival(active: &ActiveTurn, event: &AcceptedEvent) -> EventArrival {
    let id = |binding: &Option<Arc<Binding>>| binding.as_ref().map(|binding| binding.binding_id.clone());
    let its_own = id(&event.binding);
    if event.arrival.mode == AdmissionMode::Interrupt && (its_own.is_none() || its_own != id(&active.binding)) {
        return EventArrival { mode: AdmissionMode::FollowUp, ..event.arrival };
    }
    event.arrival
}

async fn wait_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
