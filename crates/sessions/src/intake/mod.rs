//! Intake: an event is durable before its source is acknowledged.

mod admission;
mod event_commit;
mod intake_queue;

use std::sync::Arc;

use capstan_delivery::{ChannelDirectory, Outbox};
use capstan_hooks::args::ResolveSessionArgs;
use capstan_hooks::points::ResolveSession;
use capstan_hooks::{HookError, HookRuntime, InboundEvent, RawPayload};
use capstan_protocol::{Clock, Event, Outcome, RawPayloadRef, SessionId, TapeName, WorkspaceId};
use capstan_tape::{StoreError, TapeAddress, TapeRepository, blob_hash, tape_name};
use capstan_turn::EventArrival;
use tokio::task::JoinError;

pub(crate) use self::admission::{AcceptancePlan, AdmissionPlanner};
use self::event_commit::RawPayloadStorage;
pub(crate) use self::event_commit::{AnchoredTapes, EventCommitter};
pub(crate) use self::intake_queue::IntakeQueues;
use self::intake_queue::IntakeTicket;
use crate::accepted_event::{AcceptedEvent, WaitingCaller};
use crate::closing::TurnCloser;
use crate::duplicate_replies::DuplicateReplies;
use crate::lease_keeper::LeaseKeeper;
use crate::lifecycle::HostLifecycle;
use crate::session_pool::SessionPool;
use crate::{HostError, IncomingEvent, SYSTEM_SESSION};

/// Accepts events: resolves the session, asks for admission, commits the event, and passes it to its session.
pub struct EventIntake {
    pub(crate) hooks: HookRuntime,
    pub(crate) tapes: TapeRepository,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) channels: ChannelDirectory,
    pub(crate) clock: Clock,
    /// Maximum size of the input of an event, in bytes.
    pub(crate) max_message_bytes: usize,
    pub(crate) planner: AdmissionPlanner,
    pub(crate) committer: EventCommitter,
    pub(crate) leases: LeaseKeeper,
    pub(crate) queues: IntakeQueues,
    pub(crate) pool: SessionPool,
    pub(crate) duplicates: DuplicateReplies,
    pub(crate) closer: Arc<TurnCloser>,
    pub(crate) outbox: Outbox,
    pub(crate) lifecycle: HostLifecycle,
}

impl EventIntake {
    /// Begins acceptance at once; its place in line is taken before this returns.
    pub fn accept_in_order(
        self: &Arc<Self>,
        incoming: IncomingEvent,
        caller: Option<WaitingCaller>,
    ) -> impl Future<Output = Result<(), HostError>> + Send + 'static {
        let intake = Arc::clone(self);
        let mut place = self.queues.join(&incoming.event);
        // A task of its own: neither its place in line nor its end depends on whether whoever asked still waits. An event
        // that is on disk must not be left without a session that knows of it.
        let accepting = self.lifecycle.tasks.spawn(async move {
            place.wait_for_predecessor().await;
            intake.accept(incoming, caller, place).await
        });
        async move {
            match accepting.await.map_err(JoinError::try_into_panic) {
                Ok(accepted) => accepted,
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                Err(Err(_)) => Err(HostError::Stopping),
            }
        }
    }

    /// Resolves the session, asks for admission, commits the event, and hands it to its session. The place in line of
    /// the event's conversation is kept until what comes next may be accepted.
    async fn accept(
        &self,
        incoming: IncomingEvent,
        caller: Option<WaitingCaller>,
        place: IntakeTicket,
    ) -> Result<(), HostError> {
        let IncomingEvent { event: inbound, binding: own_binding } = incoming;
        self.check_event(&inbound)?;
        let (session, unresolved) = self.resolve_session(&inbound).await;
        if session.as_str() == SYSTEM_SESSION {
            return Err(HostError::SessionReserved { session });
        }
        let raw = inbound.extensions().get::<RawPayload>().map(|raw| (blob_hash(&raw.0), raw));
        let inbound = inbound.with_session(session.clone(), self.workspace_id.clone());
        let inbound = match &raw {
            Some((hash, _)) => inbound.with_raw_ref(RawPayloadRef { blob: hash.clone() }),
            None => inbound,
        };
        let address = TapeAddress { workspace: self.workspace_id.clone(), session: session.clone() };
        let tape = tape_name(&address);
        let is_busy = self.pool.is_busy(&tape);
        let mut reservation = self.pool.reserve(&tape)?;
        let event = AcceptedEvent::new(inbound, session, EventArrival::follow_up());
        let mut event = AcceptedEvent { own_binding: own_binding.map(Arc::new), caller, ..event };
        let mut plan = match unresolved {
            Some(failure) => AcceptancePlan::Refuse(failure.into()),
            None => self.planner.plan_admission(&mut event, &tape, is_busy).await?,
        };
        // It is written with the acceptance: nobody needs it here any more.
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
        match self.committer.commit_event(&mut event, &tape, &plan, raw.as_ref(), &reservation).await {
            Err(HostError::Store(StoreError::DuplicateEvent { key })) => {
                // What another conversation was told is nobody else's business.
                let before = self.tapes.store().inbox_record(&key).await?;
                if before.is_some_and(|before| before.tape != tape) {
                    return Err(HostError::EventIdConflict { event_id: key.event_id });
                }
                // The source is told what became of the first one, and nothing is done twice.
                let duplicates = self.duplicates.clone();
                self.lifecycle.tasks.spawn(async move { duplicates.reply_to_duplicate(event).await });
            }
            Err(error) => return Err(error),
            Ok(()) => match plan {
                AcceptancePlan::Turn(arrival) => reservation.send(AcceptedEvent { arrival, ..event }),
                AcceptancePlan::Drop => self.outbox.enqueue_or_give_up(event.into_settled(Outcome::Dropped, None)),
                AcceptancePlan::Refuse(error) => {
                    let closer = Arc::clone(&self.closer);
                    // The source is told that the event is kept; what the observers do about it takes its own time. Until
                    // then nothing more is accepted in its conversation, so there is one of these for each.
                    self.lifecycle.tasks.spawn(async move {
                        closer.refuse_event(event, &tape, error).await;
                        drop(place);
                    });
                }
            },
        }
        Ok(())
    }

    /// An event whose caller waits is not accepted while another process works on its session: were it accepted and had
    /// no turn in time, sending it again would give that failure for ever.
    async fn wait_for_other_process(&self, event: &AcceptedEvent, tape: &TapeName) -> Result<(), HostError> {
        if !self.channels.has_waiting_caller(&event.inbound.source)
            || !self.leases.is_held_elsewhere(tape).await?
            // What that process works on may be this very event.
            || self.tapes.store().inbox_record(&event.key).await?.is_some()
        {
            return Ok(());
        }
        tokio::select! {
            are_gone = self.leases.wait_until_not_held_elsewhere(tape) => {
                if are_gone? { Ok(()) } else { Err(HostError::SessionBusy) }
            }
            () = self.lifecycle.stop_token.cancelled() => Err(HostError::Stopping),
            // It is accepted, to be cancelled.
            () = self.lifecycle.cancel_token.cancelled() => Ok(()),
        }
    }

    /// Whether the event can be taken in at all.
    fn check_event(&self, event: &Event) -> Result<(), HostError> {
        let channel = event.channel();
        if self.channels.get(&channel).is_none() {
            let known: Vec<String> = self.channels.all().iter().map(|channel| channel.name().to_string()).collect();
            return Err(HostError::UnknownChannel { channel, known: known.join(", ") });
        }
        let parts = match event.input.contents.as_slice() {
            [] => 0,
            parts => serde_json::to_vec(parts).map_or(usize::MAX, |bytes| bytes.len()),
        };
        let size = event.input.plain_text().len().saturating_add(parts);
        let limit = self.max_message_bytes;
        if size > limit { Err(HostError::MessageTooLarge { size, limit }) } else { Ok(()) }
    }

    /// The session, and why the hooks could not say, if they could not.
    async fn resolve_session(&self, inbound: &InboundEvent) -> (SessionId, Option<HookError>) {
        let args = ResolveSessionArgs { message: inbound.clone() };
        let fallback = inbound.fallback_session();
        match self.hooks.call_first::<ResolveSession>(&args).await {
            Ok(Some(decided)) if !decided.value.as_str().is_empty() => (decided.value, None),
            Ok(_) => {
                self.hooks.trace_fallback::<ResolveSession>(fallback.to_string());
                (fallback, None)
            }
            Err(failure) => {
                self.hooks.trace_fallback::<ResolveSession>(format!("{fallback}, without a turn"));
                (fallback, Some(failure))
            }
        }
    }
}
