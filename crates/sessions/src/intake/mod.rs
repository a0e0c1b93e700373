//! Intake: an event is durable before its source is acknowledged.

mod admission;
mod event_commit;
mod event_resolver;
mod intake_queue;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_delivery::{ChannelDirectory, Outbox, QueueOverflow};
use capstan_hooks::RawPayload;
use capstan_protocol::{Clock, EventId, EventKey, Outcome, RawPayloadRef, TapeName};
use capstan_tape::{StoreError, TapeAddress, TapeRepository, blob_hash};
use capstan_turn::EventArrival;
use futures::FutureExt as _;

pub(crate) use self::admission::{AcceptancePlan, AdmissionPlanner};
use self::event_commit::RawPayloadStorage;
pub(crate) use self::event_commit::{AnchoredTapes, EventCommitter};
pub use self::event_resolver::{EventResolver, ResolvedEvent};
pub(crate) use self::intake_queue::IntakeQueues;
use self::intake_queue::IntakeTicket;
use crate::accepted_event::{AcceptedEvent, LocalCaller};
use crate::closing::TurnCloser;
use crate::duplicate_replies::DuplicateReplies;
use crate::lease_keeper::LeaseKeeper;
use crate::lifecycle::HostLifecycle;
use crate::session_actor::SessionPool;
use crate::unserved_events::UnservedEvents;
use crate::{HostError, IncomingEvent};

/// Accepts events: resolves the session, plans the admission, commits the event, and sends it to its session actor.
pub struct EventIntake {
    pub(crate) resolver: EventResolver,
    pub(crate) tapes: TapeRepository,
    pub(crate) channels: ChannelDirectory,
    pub(crate) clock: Clock,
    pub(crate) planner: AdmissionPlanner,
    pub(crate) committer: EventCommitter,
    pub(crate) leases: LeaseKeeper,
    pub(crate) queues: IntakeQueues,
    pub(crate) pool: Arc<SessionPool>,
    pub(crate) duplicates: DuplicateReplies,
    pub(crate) unserved_events: UnservedEvents,
    pub(crate) closer: Arc<TurnCloser>,
    pub(crate) outbox: Outbox,
    pub(crate) lifecycle: HostLifecycle,
}

impl EventIntake {
    /// Starts the acceptance of an event. The position of the event in its conversation is fixed before this returns.
    pub fn accept_in_order(
        self: &Arc<Self>,
        incoming: IncomingEvent,
        caller: Option<LocalCaller>,
    ) -> impl Future<Output = Result<(), HostError>> + Send + 'static {
        let intake = Arc::clone(self);
        let ticket = self.queues.join(&incoming.event);
        // In a task of its own: a caller that drops the future must not end the acceptance, because a committed event has
        // to reach its session actor.
        let key = EventKey::from(&*incoming.event);
        let accepting = self.lifecycle.tasks.spawn(async move {
            let (ticket, is_unserved) = (ticket.await, AtomicBool::new(false));
            match AssertUnwindSafe(intake.accept(incoming, caller, ticket, &is_unserved)).catch_unwind().await {
                Ok(accepted) => accepted,
                Err(_panic) => Err(intake.abandon_event(key, is_unserved.into_inner()).await),
            }
        });
        // The task catches panics, so an error means that the runtime shuts down.
        async move { accepting.await.unwrap_or(Err(HostError::Stopping)) }
    }

    /// Leaves an event whose acceptance panicked to recovery, if it may have been committed and reached no session actor.
    async fn abandon_event(&self, key: EventKey, is_unserved: bool) -> HostError {
        tracing::error!(event = %key.event_id, "the acceptance of an event panicked");
        let event_id = key.event_id.clone();
        if is_unserved {
            self.unserved_events.insert(key.clone());
            if let Err(error) = self.duplicates.recover_if_orphaned(&key).await {
                tracing::error!(%error, "cannot recover an event whose acceptance panicked");
            }
        }
        HostError::IntakePanic { event_id }
    }

    /// Resolves the session, plans the admission, commits the event, and sends it to its session actor. The ticket is held
    /// until the next event of the conversation may be accepted. `is_unserved` is true from the commit until the event has
    /// reached its session actor.
    async fn accept(
        &self,
        incoming: IncomingEvent,
        caller: Option<LocalCaller>,
        ticket: IntakeTicket,
        is_unserved: &AtomicBool,
    ) -> Result<(), HostError> {
        let IncomingEvent { event: inbound, origin, binding: own_binding } = incoming;
        let resolved = self.resolver.resolve(&inbound.with_origin(origin)).await?;
        let ResolvedEvent { inbound, session, failure: unresolved } = resolved;
        let raw = inbound.extensions().get::<RawPayload>().map(|raw| (blob_hash(&raw.0), raw));
        let inbound = match &raw {
            Some((hash, _)) => inbound.with_raw_ref(RawPayloadRef { blob: hash.clone() }),
            None => inbound,
        };
        let address = TapeAddress { workspace: self.resolver.workspace_id.clone(), session: session.clone() };
        let tape = self.tapes.session_tape(&address).await?;
        let is_busy = self.pool.sessions.is_busy(&tape);
        let mut reservation = self.pool.reserve(&tape)?;
        let event = AcceptedEvent::new(inbound, session, EventArrival::follow_up());
        let mut event = AcceptedEvent { own_binding: own_binding.map(Arc::new), caller, ..event };
        let mut plan = match unresolved {
            Some(failure) => AcceptancePlan::Refuse(failure.into()),
            None => self.planner.plan_admission(&mut event, &tape, is_busy).await?,
        };
        // The raw payload is committed with the event, and not needed in memory after that.
        event.inbound.extensions().remove::<RawPayload>();
        event.inbound = event.inbound.with_accepted_at(self.clock.now());
        let raw = raw.map(|(hash, raw)| RawPayloadStorage::new(hash, &raw.0));
        if let AcceptancePlan::Turn(arrival) = plan
            && !reservation.acquire_slot(&arrival)
        {
            plan = self.planner.plan_without_slot(&event, arrival).await?;
        }
        if matches!(plan, AcceptancePlan::Turn(_)) && is_busy != Some(true) {
            self.wait_for_other_process(&event, &tape).await?;
        }
        is_unserved.store(true, Ordering::Relaxed);
        let committed = self.committer.commit_event(&mut event, &tape, &plan, raw.as_ref(), &reservation).await;
        is_unserved.store(committed.is_ok(), Ordering::Relaxed);
        let committed = match committed {
            // A closed fork takes no new events, but answers the duplicates of those that it had.
            Err(HostError::Store(StoreError::ForkClosed { .. }))
                if self.tapes.store().inbox_record(&event.key).await?.is_some() =>
            {
                Err(HostError::Store(StoreError::DuplicateEvent { key: event.key.clone() }))
            }
            committed => committed,
        };
        match committed {
            Err(HostError::Store(StoreError::DuplicateEvent { key })) => {
                // A conversation must not see the outcome of another one.
                let first = self.tapes.store().inbox_record(&key).await?;
                if let Some(first) = first.filter(|first| first.tape != tape) {
                    return Err(self.event_id_conflict(key.event_id, &first.tape).await?);
                }
                // The source gets the outcome of the first submission, and the event is not processed twice.
                let duplicates = self.duplicates.clone();
                self.lifecycle.tasks.spawn(async move { duplicates.reply_to_duplicate(event).await });
            }
            Err(error) => return Err(error),
            Ok(()) => match plan {
                AcceptancePlan::Turn(arrival) => {
                    // An earlier submission of this event may have panicked before it was committed.
                    self.unserved_events.remove(&event.key);
                    reservation.send(AcceptedEvent { arrival, ..event });
                    is_unserved.store(false, Ordering::Relaxed);
                }
                AcceptancePlan::Drop => {
                    self.outbox.enqueue(event.into_settled(Outcome::Dropped, None), QueueOverflow::GiveUp);
                }
                AcceptancePlan::Refuse(error) => {
                    let closer = Arc::clone(&self.closer);
                    // The source is acknowledged now; the observers may take longer. No further event of the conversation is
                    // accepted until they are done, so there is at most one such task for each conversation.
                    self.lifecycle.tasks.spawn(async move {
                        closer.refuse_event(event, &tape, error).await;
                        drop(ticket);
                    });
                }
            },
        }
        Ok(())
    }

    /// Error for an event id that an event on another tape has. Only the kind of the difference is disclosed.
    async fn event_id_conflict(&self, event_id: EventId, first: &TapeName) -> Result<HostError, HostError> {
        let workspace = self.tapes.record(first).await?.and_then(|record| record.workspace);
        Ok(match workspace {
            Some(workspace) if workspace != self.committer.workspace_id => {
                HostError::EventIdOfOtherWorkspace { event_id }
            }
            _ => HostError::EventIdConflict { event_id },
        })
    }

    /// Waits while another process holds the session of an event with a waiting caller. If the event were accepted and got
    /// no turn in time, every duplicate of it would get that failure.
    async fn wait_for_other_process(&self, event: &AcceptedEvent, tape: &TapeName) -> Result<(), HostError> {
        if !self.channels.has_waiting_caller(&event.inbound.source)
            || !self.leases.is_held_elsewhere(tape).await?
            // The other process may be serving this very event.
            || self.tapes.store().inbox_record(&event.key).await?.is_some()
        {
            return Ok(());
        }
        tokio::select! {
            is_free = self.leases.wait_until_not_held_elsewhere(tape) => {
                if is_free? { Ok(()) } else { Err(HostError::SessionBusy) }
            }
            () = self.lifecycle.stop_token.cancelled() => Err(HostError::Stopping),
            // Accepted, so that its turn is cancelled with an outcome.
            () = self.lifecycle.cancel_token.cancelled() => Ok(()),
        }
    }
}
