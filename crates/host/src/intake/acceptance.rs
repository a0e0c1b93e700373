//! Acceptance: an event is durable before its source is told so.

use std::sync::Arc;

use capstan_hooks::args::{AdmitMessageArgs, ResolveSessionArgs, SessionBusy};
use capstan_hooks::contracts::IntakeOptions;
use capstan_hooks::points::{AdmissionDecision, AdmitMessage, BuildPrompt, ResolveSession};
use capstan_hooks::{HookError, InboundEvent, RawPayload, ReplyOnlyCaller};
use capstan_protocol::{AdmissionMode, BlobHash, EntryId, Event, Outcome, RawPayloadRef, SessionId, TapeName};
use capstan_tape::{
    Batch, BatchPrecondition, CommitDurability, EntryDraft, EventAcceptance, Fact, NewTape, StoreError, StoredBinding,
    TapeAddress, TapeEvent, blob_hash, tape_name,
};
use capstan_turn::{ArrivalKind, EventArrival, TurnError};

use super::intake_queue::IntakeTicket;
use crate::engine::Engine;
use crate::services::{SYSTEM_SESSION, Services};
use crate::sessions::accepted_event::{AcceptedEvent, WaitingCaller};
use crate::sessions::active_sessions::SessionReservation;
use crate::{HostError, IncomingEvent};

/// Where an acceptance has what the platform sent, if that is no longer than this. What is longer is a content of its own.
const MAX_INLINE_RAW_BYTES: usize = 1024;

/// How often acceptance is tried again when another process wrote to the same tape in between.
const ACCEPT_CONFLICT_RETRIES: usize = 16;

/// What comes after acceptance.
enum AcceptancePlan {
    /// A turn, taken in like this.
    Turn(EventArrival),
    /// Nothing: admission lets it go.
    Drop,
    /// No turn, and the user is told: too many wait already, or a hook failed before it. An event whose session could
    /// not be resolved must not run on one that may be shared.
    Refuse(TurnError),
}

/// What the platform sent.
enum RawPayloadStorage {
    /// It stands with the acceptance.
    Inline(String),
    /// It is a content of its own.
    Blob { hash: BlobHash, bytes: Arc<[u8]> },
}

impl RawPayloadStorage {
    fn new(hash: BlobHash, bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) if text.len() <= MAX_INLINE_RAW_BYTES => Self::Inline(text.to_owned()),
            _ => Self::Blob { hash, bytes: bytes.into() },
        }
    }
}

impl Engine {
    /// Resolves the session, asks for admission, commits the event, and hands it to its session. The place in line of
    /// the event's conversation is kept until what comes next may be accepted.
    pub(crate) async fn accept(
        self: &Arc<Self>,
        incoming: IncomingEvent,
        caller: Option<WaitingCaller>,
        place: IntakeTicket,
    ) -> Result<(), HostError> {
        let services = &self.services;
        let IncomingEvent { event: inbound, binding: own_binding } = incoming;
        services.check_event(&inbound)?;
        let (session, unresolved) = services.resolve_session(&inbound).await;
        if session.as_str() == SYSTEM_SESSION {
            return Err(HostError::SessionReserved { session });
        }
        let raw = inbound.extensions().get::<RawPayload>().map(|raw| (blob_hash(&raw.0), raw));
        let inbound = inbound.with_session(session.clone(), services.workspace_id.clone());
        let inbound = match &raw {
            Some((hash, _)) => inbound.with_raw_ref(RawPayloadRef { blob: hash.clone() }),
            None => inbound,
        };
        let address = TapeAddress { workspace: services.workspace_id.clone(), session: session.clone() };
        let tape = tape_name(&address);
        let is_busy = self.active_sessions.is_busy(&tape);
        let mut reservation = self.reserve_session(&tape)?;
        let event = AcceptedEvent::new(inbound, session, EventArrival::follow_up());
        let mut event = AcceptedEvent { own_binding: own_binding.map(Arc::new), caller, ..event };
        let mut plan = match unresolved {
            Some(failure) => AcceptancePlan::Refuse(failure.into()),
            None => services.plan_admission(&mut event, &tape, is_busy).await?,
        };
        // It is written with the acceptance: nobody needs it here any more.
        event.inbound.extensions().remove::<RawPayload>();
        event.inbound = event.inbound.with_accepted_at(services.options.clock.now());
        let raw = raw.map(|(hash, raw)| RawPayloadStorage::new(hash, &raw.0));
        if let AcceptancePlan::Turn(arrival) = plan
            && !reservation.acquire_slot(&arrival)
        {
            plan = services.plan_without_slot(&event, arrival).await?;
        }
        if matches!(plan, AcceptancePlan::Turn(_)) && is_busy != Some(true) {
            self.wait_for_other_process(&event, &tape).await?;
        }
        match services.commit_event(&mut event, &tape, &plan, raw.as_ref(), &reservation).await {
            Err(HostError::Store(StoreError::DuplicateEvent { key })) => {
                // What another conversation was told is nobody else's business.
                let before = services.tapes.store().inbox_record(&key).await?;
                if before.is_some_and(|before| before.tape != tape) {
                    return Err(HostError::EventIdConflict { event_id: key.event_id });
                }
                // The source is told what became of the first one, and nothing is done twice.
                let engine = Arc::clone(self);
                self.tasks.spawn(async move { engine.reply_to_duplicate(event).await });
            }
            Err(error) => return Err(error),
            Ok(()) => match plan {
                AcceptancePlan::Turn(arrival) => reservation.send(AcceptedEvent { arrival, ..event }),
                AcceptancePlan::Drop => self.outbox.enqueue_or_give_up(event.into_settled(Outcome::Dropped, None)),
                AcceptancePlan::Refuse(error) => {
                    let engine = Arc::clone(self);
                    // The source is told that the event is kept; what the observers do about it takes its own time. Until
                    // then nothing more is accepted in its conversation, so there is one of these for each.
                    self.tasks.spawn(async move {
                        engine.refuse_event(event, &tape, error).await;
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
        let services = &self.services;
        if !services.channels.has_waiting_caller(&event.inbound.source)
            || !services.is_held_elsewhere(tape).await?
            // What that process works on may be this very event.
            || services.tapes.store().inbox_record(&event.key).await?.is_some()
        {
            return Ok(());
        }
        tokio::select! {
            are_gone = services.wait_until_not_held_elsewhere(tape) => {
                if are_gone? { Ok(()) } else { Err(HostError::SessionBusy) }
            }
            () = self.stop_token.cancelled() => Err(HostError::Stopping),
            // It is accepted, to be cancelled.
            () = self.cancel_token.cancelled() => Ok(()),
        }
    }
}

impl Services {
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
        let limit = self.options.max_message_bytes;
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

    /// Whether somebody, here or in another process, works on a session.
    async fn is_session_held(&self, tape: &TapeName) -> Result<bool, StoreError> {
        let now = self.options.clock.now();
        let lease = self.tapes.store().lease(tape).await?;
        Ok(lease.is_some_and(|lease| self.options.lease_owner.is_held(&lease, now)))
    }

    /// What the hooks want done with the event; where they say nothing, what the binding, the configuration and the
    /// channel say, in this order.
    async fn plan_admission(
        &self,
        event: &mut AcceptedEvent,
        tape: &TapeName,
        is_busy: Option<bool>,
    ) -> Result<AcceptancePlan, StoreError> {
        let binding = match self.resolve_event_binding(event).await {
            Ok(binding) => binding,
            Err(TurnError::Store(error)) => return Err(error),
            Err(error) => return Ok(AcceptancePlan::Refuse(error)),
        };
        let inbound = &event.inbound;
        let intake = self.intake_options(inbound);
        let set = binding.and_then(|binding| binding.delivery_policy.admission);
        let set = set.or(intake.admission).unwrap_or_default();
        // Whether another process works on the session is only looked up for whoever wants to know.
        let asks = self.hooks.is_implemented::<AdmitMessage>() || set == AdmissionMode::Drop;
        let is_busy = match is_busy {
            Some(is_busy) => is_busy,
            None => asks && self.is_session_held(tape).await?,
        };
        let (message, session_id) = (inbound.clone(), event.session.clone());
        let args = AdmitMessageArgs { message, session_id, busy: SessionBusy(is_busy) };
        let answer = match self.hooks.call_first::<AdmitMessage>(&args).await {
            Err(failure) => return Ok(AcceptancePlan::Refuse(failure.into())),
            Ok(decided) => decided.map(|decided| decided.value),
        };
        let mode = match answer {
            Some(AdmissionDecision::WithMode(mode)) => mode,
            Some(AdmissionDecision::Process | AdmissionDecision::Concurrent) => AdmissionMode::FollowUp,
            // Modes are about what people say. Whatever else happens has a turn of its own.
            None if !inbound.is_message() => AdmissionMode::FollowUp,
            None => set,
        };
        // Nobody else has the authority that came with it.
        let is_alone = !inbound.is_message() || event.own_binding.is_some();
        let kind = match (answer, inbound.command_line()) {
            // Of messages there is one turn at a time, whatever a hook says.
            // What is a command here must be one for the runner too.
            (_, Some(_)) if self.hooks.is_overridden::<BuildPrompt>() || self.has_model_stage_override => {
                ArrivalKind::Command
            }
            (Some(AdmissionDecision::Concurrent), Some(_)) => ArrivalKind::ConcurrentCommand,
            (None, Some(line)) if self.is_read_only_command(line) => ArrivalKind::ConcurrentCommand,
            (_, Some(_)) => ArrivalKind::Command,
            (_, None) if is_alone => ArrivalKind::Standalone,
            (_, None) => ArrivalKind::Message { addressed: inbound.is_addressed() },
        };
        if is_busy && mode == AdmissionMode::Drop && kind != ArrivalKind::ConcurrentCommand {
            return Ok(AcceptancePlan::Drop);
        }
        let debounce = intake.debounce.filter(|_| !is_alone);
        Ok(AcceptancePlan::Turn(EventArrival { mode, kind, debounce }))
    }

    /// What becomes of an event for which there is no place among those that wait. Whoever waits for it can be refused:
    /// then nothing is kept, and the same event may come again. Others would only send it again at once.
    async fn plan_without_slot(
        &self,
        event: &AcceptedEvent,
        arrival: EventArrival,
    ) -> Result<AcceptancePlan, HostError> {
        let is_said = matches!(arrival.kind, ArrivalKind::Message { .. } | ArrivalKind::Standalone);
        if is_said && !event.inbound.is_addressed() {
            // It was not said to the bot, which had better not answer that it is too busy to listen.
            return Ok(AcceptancePlan::Drop);
        }
        if event.caller.is_none() && !self.channels.has_waiting_caller(&event.inbound.source) {
            return Ok(AcceptancePlan::Refuse(TurnError::QueueFull));
        }
        match self.tapes.store().inbox_record(&event.key).await? {
            // It is no event more: its commit will say so.
            Some(_) => Ok(AcceptancePlan::Turn(arrival)),
            None => Err(HostError::QueueFull),
        }
    }

    /// Whether a command only looks, and may run beside a turn.
    fn is_read_only_command(&self, line: &str) -> bool {
        let name = line.split_whitespace().next().unwrap_or_default();
        self.tool(name).is_some_and(|tool| tool.is_read_only() && tool.spec().name.as_str() == name)
    }

    /// How the event's channel takes things in, unless the configuration says otherwise.
    pub(crate) fn intake_options(&self, event: &Event) -> IntakeOptions {
        let own = self.channels.get(&event.source).map(|channel| channel.intake_options()).unwrap_or_default();
        let set = self.options.intake_overrides.get(&event.source).copied().unwrap_or_default();
        IntakeOptions { admission: set.admission.or(own.admission), debounce: set.debounce.or(own.debounce) }
    }

    /// Commits the event: the tape begun if it is new, the entry that tells of it, the inbox row, and the lease if it
    /// is to be had; or its outcome, if it has one already. The event then knows its entry and its lease.
    async fn commit_event(
        &self,
        event: &mut AcceptedEvent,
        tape: &TapeName,
        plan: &AcceptancePlan,
        raw: Option<&RawPayloadStorage>,
        reservation: &SessionReservation,
    ) -> Result<(), HostError> {
        let AcceptedEvent { inbound, key, session, own_binding, .. } = &*event;
        let owner = self.options.lease_owner.name().to_owned();
        for _ in 0..ACCEPT_CONFLICT_RETRIES {
            let now = self.options.clock.now();
            // The end of the turn makes this durable too, and nothing is heard of it before.
            let hears_later =
                matches!(plan, AcceptancePlan::Turn(_)) && inbound.extensions().get::<ReplyOnlyCaller>().is_some();
            let promise = if hears_later { CommitDurability::Ordered } else { CommitDurability::Durable };
            let mut batch = Batch { durability: promise, ..Batch::new() };
            batch.push(Fact::EnsureTape(NewTape {
                name: tape.clone(),
                session: Some(session.clone()),
                workspace: Some(self.workspace_id.clone()),
                head: EntryId(0),
            }));
            if !self.is_anchored(tape) {
                // Read before the anchor is looked for: whoever begins the tape in between moves it on.
                let head = self.tapes.record(tape).await?.map(|record| record.head).unwrap_or_default();
                if self.tapes.last_anchor(tape).await?.is_none() {
                    batch.preconditions.push(BatchPrecondition::TapeHead { tape: tape.clone(), head });
                    for draft in EntryDraft::session_start() {
                        batch.append(tape, EntryDraft { date: Some(now.into()), ..draft });
                    }
                }
            }
            let mut accepted = EventAcceptance::new(Event::clone(inbound));
            match raw {
                Some(RawPayloadStorage::Inline(text)) => accepted.raw = Some(text.clone()),
                Some(RawPayloadStorage::Blob { hash, bytes }) => {
                    batch.push(Fact::PutBlob { hash: hash.clone(), bytes: Arc::clone(bytes) });
                }
                None => {}
            }
            accepted.binding = own_binding.as_deref().map(StoredBinding::from);
            if let AcceptancePlan::Refuse(error) = plan {
                accepted.without_turn = Some(error.public_message());
            }
            let accepted = TapeEvent::EventAccepted(accepted);
            let entry = batch.append(tape, EntryDraft { date: Some(now.into()), ..accepted.into() });
            batch.push(Fact::AcceptEvent {
                key: key.clone(),
                session: session.clone(),
                tape: tape.clone(),
                entry,
                accepted_at: now,
                owner: owner.clone(),
            });
            let mut lease = None;
            match plan {
                AcceptancePlan::Turn(_) if reservation.can_take_lease => {
                    lease = Some(batch.push(self.renewal_fact(&reservation.claim)));
                }
                AcceptancePlan::Turn(_) | AcceptancePlan::Refuse(_) => {}
                AcceptancePlan::Drop => {
                    batch.push(Fact::SettleEvent { key: key.clone(), outcome: Outcome::Dropped, run_id: None });
                }
            }
            match self.tapes.commit(batch).await {
                Err(StoreError::HeadMoved { .. }) => {}
                Err(error) => return Err(error.into()),
                Ok(committed) => {
                    self.mark_anchored(tape);
                    let lease = lease.and_then(|position: usize| committed.outputs.get(position));
                    event.lease = reservation.claim.fence(lease);
                    event.entry = committed.entry_id(entry).unwrap_or_default();
                    return Ok(());
                }
            }
        }
        Err(StoreError::HeadMoved { tape: tape.clone() }.into())
    }
}

#[cfg(test)]
#[path = "acceptance_tests.rs"]
mod tests;
