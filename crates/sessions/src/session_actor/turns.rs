//! Turns of a session actor, and the commands that run concurrently with them.
//!
//! # Sequence of a turn
//!
//! 1. Acquire the lease, and recover orphaned events if that has not been done. The batch goes back to the mailbox, and
//!    the recovered events are queued in order of acceptance.
//! 2. If another process has an earlier event of the session, pass the lease to that process and wait; see
//!    [`turn_order`](super::turn_order).
//! 3. Acquire the permit of a turn. Sessions wait for permits in order of arrival.
//! 4. Split the batch by binding. The first part gets this turn; the others go back to the front of the mailbox.
//! 5. Run the turn while events are received, and offer events to its run.
//! 6. Close the steering: events that the run ingested end with the turn, the others are queued again.
//! 7. Commit the end of the turn, and enqueue its deliveries. The same commit releases the lease, if the session has no
//!    other work, or renews it.
//! 8. Wait for capacity in the queues of the chats.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_delivery::{ChannelTarget, QueueOverflow};
use capstan_hooks::HookTurn;
use capstan_protocol::Binding;
use capstan_runs::{ActiveTurn, Journal, OfferedEvent, Steering};
use capstan_tape::{Fence, TapeReader};
use capstan_turn::{TurnContext, TurnError};
use tokio::sync::oneshot;

use super::{SessionActor, SessionPhase};
use crate::accepted_event::{AcceptedEvent, TurnBatch};
use crate::closing::FinishedTurn;
use crate::closing::delay_notice::notify_delayed_callers;
use crate::split_by_binding::binding_turn_error;

impl SessionActor {
    /// Runs the turn of a batch, and receives events meanwhile.
    pub(super) async fn run_next_turn(&mut self, batch: TurnBatch) {
        let fence = match self.ensure_lease().await {
            Ok(Some(fence)) => fence,
            // The host stops: the events stay in the store for the next start.
            Ok(None) => return self.mailbox.push_front(batch.into_events()),
            Err(error) => return Box::pin(self.pool.closer.settle_without_turn(batch, &self.tape, error)).await,
        };
        if !self.is_recovered {
            self.mailbox.push_front(batch.into_events());
            return Box::pin(self.recover(&fence)).await;
        }
        let Some(batch) = Box::pin(self.take_turn(batch)).await else { return };
        let permit = match self.acquire_turn_permit().await {
            Ok(Some(permit)) => permit,
            Ok(None) => return self.mailbox.push_front(batch.into_events()),
            Err(error) => return Box::pin(self.pool.closer.settle_without_turn(batch, &self.tape, error)).await,
        };
        let mut batches = batch.split_by_binding(&self.pool.bindings).await.into_iter();
        let Some(mut batch) = batches.next() else { return };
        for deferred in batches.rev() {
            self.mailbox.push_front(deferred.into_events());
        }
        let active = match &batch.binding {
            Ok(binding) => self.start_turn(&batch, fence, binding.clone()),
            Err(error) => {
                let error = error.clone();
                return self.pool.closer.settle_without_turn(batch, &self.tape, error).await;
            }
        };
        batch.release_slots();
        let pool = Arc::clone(&self.pool);
        let mut report = {
            pool.sessions.set_turn_cancel_token(&self.tape, active.cancel_token.clone());
            let (inbound, lead) = (&batch.inbound, &batch.lead);
            let target =
                ChannelTarget::new(&pool.channels, inbound, active.binding.clone(), lead.is_caller_disconnected);
            let hook_turn = HookTurn::new(lead.session.clone(), Some(self.tape_reader())).with_anchors();
            let context = TurnContext { turn: &active, reply_target: &target, hook_turn: &hook_turn };
            let turn = pool.turn_pipeline.process(inbound.clone(), lead.session.clone(), &context);
            tokio::pin!(turn);
            loop {
                tokio::select! {
                    report = &mut turn => break report,
                    signal = self.inbox.next_signal() => self.handle_signal(signal, SessionPhase::InTurn(&active)),
                    Some(_) = self.concurrent_commands.join_next() => {}
                }
            }
        };
        // The end of the turn needs no connection and no process.
        drop(permit);
        if active.is_interrupted.load(Ordering::SeqCst) && matches!(report.result, Err(TurnError::Cancelled)) {
            report.notice = None;
        }
        let ingested = self.close_steering(&active);
        // The recipient of the reply may send another event at once, which does not arrive during this turn.
        self.leave_turn();
        let is_last = self.mailbox.is_empty() && self.concurrent_commands.is_empty();
        let is_releasing = is_last && pool.sessions.begin_release(&self.tape);
        let lease = if is_releasing { self.claim.release_fact() } else { pool.leases.renewal_fact(&self.claim) };
        let (store_failure, store_failed) = oneshot::channel();
        let finished = FinishedTurn {
            batch,
            ingested,
            tape: self.tape.clone(),
            report,
            journal: Some(active.journal),
            store_failure: Some(store_failure),
            close_order: Some(Arc::clone(&self.close_order)),
        };
        let closed = {
            let closing = pool.closer.close_turn(finished, Some(lease), QueueOverflow::Enqueue);
            tokio::pin!(closing);
            tokio::select! {
                closed = &mut closing => closed,
                // The commit is retried for as long as the store fails: the callers of queued events are notified now.
                Ok(error) = store_failed => {
                    notify_delayed_callers(&pool.outbox, self.mailbox.iter_mut(), &error.into());
                    closing.await
                }
            }
        };
        let was_fenced = matches!(&closed, Ok(closed) if closed.was_fenced);
        if is_releasing || was_fenced {
            self.fence = None;
        }
        if was_fenced {
            self.is_recovered = false;
            self.needs_recovery = true;
        }
        if is_releasing {
            pool.sessions.end_release(&self.tape);
        }
        match closed {
            Ok(closed) => pool.outbox.wait_for_capacity(&closed.chats).await,
            Err(error) => {
                tracing::error!(tape = %self.tape, %error, "cannot write the end of a turn");
                notify_delayed_callers(&pool.outbox, self.mailbox.iter_mut(), &error.into());
            }
        }
    }

    /// Offers an event to the run of a turn; returns it when the run is over.
    pub(super) fn offer_to_run(&mut self, active: &ActiveTurn, mut event: AcceptedEvent) -> Option<AcceptedEvent> {
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

    fn tape_reader(&self) -> TapeReader {
        TapeReader::new(self.pool.tapes.clone(), self.tape.clone())
    }

    fn start_turn(&self, batch: &TurnBatch, fence: Fence, binding: Option<Arc<Binding>>) -> ActiveTurn {
        let pool = &self.pool;
        let (clock, tasks) = (pool.clock.clone(), pool.lifecycle.tasks.clone());
        let journal = Journal::new(pool.tapes.clone(), self.tape.clone(), fence, clock, tasks);
        journal.require_ownership(batch.events().map(|event| event.key.clone()), pool.leases.owner.name());
        ActiveTurn {
            journal: Arc::new(journal),
            cancel_token: self.pool.lifecycle.cancel_token.child_token(),
            steering: Arc::new(Steering::default()),
            binding,
            origin: batch.inbound.origin(),
            begins_after: batch.newest_entry(),
            events: batch.events().map(|event| (event.key.clone(), event.message_entry)).collect(),
            is_interrupted: AtomicBool::new(false),
        }
    }

    /// Starts a command concurrently with the running turn, under the same lease.
    pub(super) fn start_concurrent_command(&mut self, event: AcceptedEvent, fence: Fence) {
        let mut batch = TurnBatch::from_event(event);
        batch.release_slots();
        let mut active = self.start_turn(&batch, fence, None);
        let tape_reader = self.tape_reader();
        let (pool, tape, close_order) = (Arc::clone(&self.pool), self.tape.clone(), Arc::clone(&self.close_order));
        let fenced_tape = tape.clone();
        self.concurrent_commands.spawn(async move {
            let lead = &mut batch.lead;
            match pool.bindings.resolve(&lead.inbound, lead.own_binding.as_ref()).await {
                Ok(binding) => {
                    lead.binding.clone_from(&binding);
                    active.binding = binding;
                }
                Err(error) => {
                    return pool.closer.settle_without_turn(batch, &tape, binding_turn_error(&error)).await;
                }
            }
            let report = {
                let (inbound, lead) = (&batch.inbound, &batch.lead);
                let target =
                    ChannelTarget::new(&pool.channels, inbound, active.binding.clone(), lead.is_caller_disconnected);
                // The command may run beside a turn, whose messages an anchor would cut off.
                let hook_turn = HookTurn::new(lead.session.clone(), Some(tape_reader));
                let context = TurnContext { turn: &active, reply_target: &target, hook_turn: &hook_turn };
                pool.turn_pipeline.process(inbound.clone(), lead.session.clone(), &context).await
            };
            let finished = FinishedTurn {
                batch,
                // Concurrent commands are offered no events.
                ingested: Vec::new(),
                tape,
                report,
                journal: Some(active.journal),
                store_failure: None,
                close_order: Some(close_order),
            };
            match pool.closer.close_turn(finished, None, QueueOverflow::Enqueue).await {
                Ok(closed) if closed.was_fenced => match pool.reserve(&fenced_tape) {
                    Ok(reservation) => reservation.request_recovery(1),
                    Err(error) => tracing::info!(%error, "an event is left to the next start"),
                },
                Ok(closed) => pool.outbox.wait_for_capacity(&closed.chats).await,
                Err(error) => tracing::error!(%error, "cannot write the end of a concurrent command"),
            }
        });
    }
}
