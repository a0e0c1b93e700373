//! Acceptance: an event is durable before its source is told so.

use std::sync::Arc;

use capstan_hooks::args::{AdmitMessageArgs, Busy, ResolveSessionArgs};
use capstan_hooks::contracts::Intake;
use capstan_hooks::points::{Admission, AdmitMessage, BuildPrompt, ResolveSession};
use capstan_hooks::{CameAt, HearsOnlyAnswer, HookFailure, Inbound, RawPayload};
use capstan_protocol::{AdmissionMode, BlobHash, EntryId, Event, EventKey, Outcome, RawRef, SessionId, TapeName};
use capstan_tape::{
    Batch, Draft, Entry, Expect, Fact, Fence, NewTape, Promise, StoreError, TapeAddress, blob_hash, tape_name,
};
use capstan_turn::{Arrival, ArrivalKind, TurnError};
use serde_json::json;

use super::order::Place;
use crate::HostError;
use crate::delivery::outbox::Parcel;
use crate::engine::Engine;
use crate::queries::{OWN_BINDING, OwnBinding};
use crate::recovery::left::WITHOUT_TURN;
use crate::services::{SYSTEM, Services};
use crate::sessions::awake::Reservation;
use crate::sessions::item::{Caller, Item};

/// Where an acceptance has what the platform sent, if that is no longer than this. What is longer is a content of its own.
const RAW: &str = "raw";
const SHORT_RAW_BYTES: usize = 1024;

/// What the platform sent, where it stands with the acceptance that this entry tells of. Otherwise it is the content that the
/// event's `raw_ref` names.
pub fn raw_with_acceptance(entry: &Entry) -> Option<&str> {
    entry.payload.get("data")?.get(RAW)?.as_str()
}

/// How often acceptance is tried again when another process wrote to the same tape in between.
const RACES: usize = 16;

/// What comes after acceptance.
enum Plan {
    /// A turn, taken in like this.
    Turn(Arrival),
    /// Nothing: admission lets it go.
    Drop,
    /// No turn, and the user is told: too many wait already, or a hook failed before it. An event whose session could
    /// not be resolved must not run on one that may be shared.
    Refuse(TurnError),
}

/// An event that is about to be accepted.
struct Candidate {
    inbound: Inbound,
    key: EventKey,
    session: SessionId,
    tape: TapeName,
    plan: Plan,
    /// What the platform sent, to be kept.
    raw: Option<Raw>,
}

/// What the platform sent.
enum Raw {
    /// It stands with the acceptance.
    Short(String),
    /// It is a content of its own.
    Blob { hash: BlobHash, bytes: Arc<[u8]> },
}

impl Raw {
    fn new(hash: BlobHash, bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) if text.len() <= SHORT_RAW_BYTES => Self::Short(text.to_owned()),
            _ => Self::Blob { hash, bytes: bytes.into() },
        }
    }
}

/// What acceptance gave.
struct Accepted {
    entry: EntryId,
    lease: Option<Fence>,
}

impl Engine {
    /// Resolves the session, asks for admission, commits the event, and hands it to its session. The place in line of
    /// the event's conversation is kept until what comes next may be accepted.
    pub(crate) async fn accept(
        self: &Arc<Self>,
        inbound: Inbound,
        caller: Option<Caller>,
        place: Place,
    ) -> Result<(), HostError> {
        let services = &self.services;
        services.check(&inbound)?;
        let (session, unresolved) = services.resolve_session(&inbound).await;
        if session.as_str() == SYSTEM {
            return Err(HostError::SessionReserved { session });
        }
        let raw = inbound.extensions().get::<RawPayload>().map(|raw| (blob_hash(&raw.0), raw));
        let inbound = inbound.in_session(session.clone(), services.workspace_id.clone());
        let inbound = match &raw {
            Some((hash, _)) => inbound.referring_to(RawRef { blob: hash.clone() }),
            None => inbound,
        };
        let address = TapeAddress { workspace: services.workspace_id.clone(), session: session.clone() };
        let tape = tape_name(&address);
        let is_busy = self.sessions.is_busy(&tape);
        let mut reservation = self.reserve(&tape)?;
        let plan = match unresolved {
            Some(failure) => Plan::Refuse(failure.into()),
            None => services.admit(&inbound, &session, &tape, is_busy).await?,
        };
        // It is written with the acceptance: nobody needs it here any more.
        inbound.extensions().remove::<RawPayload>();
        inbound.extensions().insert(CameAt(services.settings.clock.now()));
        let raw = raw.map(|(hash, raw)| Raw::new(hash, &raw.0));
        let mut candidate = Candidate { key: EventKey::from(&*inbound), inbound, session, tape, plan, raw };
        if let Plan::Turn(arrival) = candidate.plan
            && !reservation.take_place(&arrival)
        {
            candidate.plan = services.without_place(&candidate, arrival, caller.as_ref()).await?;
        }
        if matches!(candidate.plan, Plan::Turn(_)) && is_busy != Some(true) {
            self.wait_for_others(&candidate).await?;
        }
        match services.commit_event(&candidate, &reservation).await {
            Err(HostError::Store(StoreError::Duplicate { key })) => {
                // What another conversation was told is nobody else's business.
                let before = services.tapes.store().accepted(&key).await?;
                if before.is_some_and(|before| before.tape != candidate.tape) {
                    return Err(HostError::EventIdTaken { event_id: key.event_id });
                }
                self.again(candidate, caller);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(accepted) => {
                self.accepted(candidate, accepted, reservation, caller, place);
                Ok(())
            }
        }
    }

    /// An event whose caller waits is not accepted while another process works on its session: were it accepted and had
    /// no turn in time, sending it again would give that failure for ever.
    async fn wait_for_others(&self, candidate: &Candidate) -> Result<(), HostError> {
        let services = &self.services;
        if !services.caller_waits(&candidate.inbound.source)
            || !services.is_held_elsewhere(&candidate.tape).await?
            // What that process works on may be this very event.
            || services.tapes.store().accepted(&candidate.key).await?.is_some()
        {
            return Ok(());
        }
        tokio::select! {
            are_gone = services.wait_for_others(&candidate.tape) => {
                if are_gone? { Ok(()) } else { Err(HostError::SessionBusy) }
            }
            () = self.stopping.cancelled() => Err(HostError::Stopping),
            // It is accepted, to be cancelled.
            () = self.cancelled.cancelled() => Ok(()),
        }
    }

    /// An event is accepted: it goes on to its session, or has ended already.
    fn accepted(
        self: &Arc<Self>,
        candidate: Candidate,
        accepted: Accepted,
        reservation: Reservation,
        caller: Option<Caller>,
        place: Place,
    ) {
        let Candidate { inbound, key, session, tape, plan, raw: _ } = candidate;
        let entry = accepted.entry;
        let item =
            |arrival| Item { inbound, key, session, entry, arrival, message: None, leads: false, caller, place: None };
        let no_matter = Arrival::plain();
        match plan {
            Plan::Turn(arrival) => reservation.send(item(arrival), accepted.lease),
            Plan::Drop => self.deliver_at_once(Parcel::dropped(item(no_matter))),
            Plan::Refuse(error) => {
                let engine = Arc::clone(self);
                let item = item(no_matter);
                // The source is told that the event is kept; what the observers do about it takes its own time. Until
                // then nothing more is accepted in its conversation, so there is one of these for each.
                self.tasks.spawn(async move {
                    engine.refuse(item, &tape, error).await;
                    drop(place);
                });
            }
        }
    }

    /// The same event again: whoever sent it is told what became of it, and nothing is done twice.
    fn again(self: &Arc<Self>, candidate: Candidate, caller: Option<Caller>) {
        let Candidate { inbound, key, session, .. } = candidate;
        let engine = Arc::clone(self);
        self.tasks.spawn(async move { engine.answer_again(inbound, key, session, caller).await });
    }
}

impl Services {
    /// Whether the event can be taken in at all.
    fn check(&self, event: &Event) -> Result<(), HostError> {
        let channel = event.channel();
        if self.channel(&channel).is_none() {
            let known: Vec<String> = self.channels().iter().map(|channel| channel.name().to_string()).collect();
            return Err(HostError::UnknownChannel { channel, known: known.join(", ") });
        }
        let parts = match event.input.contents.as_slice() {
            [] => 0,
            parts => serde_json::to_vec(parts).map_or(usize::MAX, |bytes| bytes.len()),
        };
        let size = event.input.plain_text().len().saturating_add(parts);
        let limit = self.settings.max_message_bytes;
        if size > limit { Err(HostError::MessageTooLarge { size, limit }) } else { Ok(()) }
    }

    /// The session, and why the hooks could not say, if they could not.
    async fn resolve_session(&self, inbound: &Inbound) -> (SessionId, Option<HookFailure>) {
        let args = ResolveSessionArgs { message: inbound.clone() };
        let fallback = inbound.fallback_session();
        match self.hooks.first::<ResolveSession>(&args).await {
            Ok(Some(decided)) if !decided.value.as_str().is_empty() => (decided.value, None),
            Ok(_) => {
                self.hooks.fell_back::<ResolveSession>(fallback.to_string());
                (fallback, None)
            }
            Err(failure) => {
                self.hooks.fell_back::<ResolveSession>(format!("{fallback}, without a turn"));
                (fallback, Some(failure))
            }
        }
    }

    /// Whether somebody, here or in another process, works on a session.
    async fn is_held(&self, tape: &TapeName) -> Result<bool, StoreError> {
        let now = self.settings.clock.now();
        let lease = self.tapes.store().lease(tape).await?;
        Ok(lease.is_some_and(|lease| self.settings.owner.is_held(&lease, now)))
    }

    /// What the hooks want done with the event; where they say nothing, what the binding, the configuration and the
    /// channel say, in this order.
    async fn admit(
        &self,
        inbound: &Inbound,
        session: &SessionId,
        tape: &TapeName,
        is_busy: Option<bool>,
    ) -> Result<Plan, StoreError> {
        let intake = self.intake(inbound);
        let binding = match self.binding_of(inbound).await {
            Ok(binding) => binding,
            Err(TurnError::Store(error)) => return Err(error),
            Err(error) => return Ok(Plan::Refuse(error)),
        };
        let set = binding.and_then(|binding| binding.delivery_policy.admission);
        let set = set.or(intake.admission).unwrap_or_default();
        // Whether another process works on the session is only looked up for whoever wants to know.
        let asks = self.hooks.is_implemented::<AdmitMessage>() || set == AdmissionMode::Drop;
        let is_busy = match is_busy {
            Some(is_busy) => is_busy,
            None => asks && self.is_held(tape).await?,
        };
        let args = AdmitMessageArgs { message: inbound.clone(), session_id: session.clone(), busy: Busy(is_busy) };
        let answer = match self.hooks.first::<AdmitMessage>(&args).await {
            Err(failure) => return Ok(Plan::Refuse(failure.into())),
            Ok(decided) => decided.map(|decided| decided.value),
        };
        let mode = match answer {
            Some(Admission::As(mode)) => mode,
            Some(Admission::Process | Admission::Beside) => AdmissionMode::FollowUp,
            // Modes are about what people say. Whatever else happens has a turn of its own.
            None if !inbound.is_message() => AdmissionMode::FollowUp,
            None => set,
        };
        // Nobody else has the authority that came with it.
        let is_alone = !inbound.is_message() || inbound.extensions().get::<OwnBinding>().is_some();
        let kind = match (answer, inbound.command_line()) {
            // Of messages there is one turn at a time, whatever a hook says.
            // What is a command here must be one for the runner too.
            (_, Some(_)) if self.hooks.is_replaced::<BuildPrompt>() || self.has_stand_ins => ArrivalKind::Command,
            (Some(Admission::Beside), Some(_)) => ArrivalKind::Beside,
            (None, Some(line)) if self.only_looks(line) => ArrivalKind::Beside,
            (_, Some(_)) => ArrivalKind::Command,
            (_, None) if is_alone => ArrivalKind::Alone,
            (_, None) => ArrivalKind::Message { addressed: inbound.is_addressed() },
        };
        if is_busy && mode == AdmissionMode::Drop && kind != ArrivalKind::Beside {
            return Ok(Plan::Drop);
        }
        let debounce = intake.debounce.filter(|_| !is_alone);
        Ok(Plan::Turn(Arrival { mode, kind, debounce }))
    }

    /// What becomes of an event for which there is no place among those that wait. Whoever waits for it can be refused:
    /// then nothing is kept, and the same event may come again. Others would only send it again at once.
    async fn without_place(
        &self,
        candidate: &Candidate,
        arrival: Arrival,
        caller: Option<&Caller>,
    ) -> Result<Plan, HostError> {
        let is_said = matches!(arrival.kind, ArrivalKind::Message { .. } | ArrivalKind::Alone);
        if is_said && !candidate.inbound.is_addressed() {
            // It was not said to the bot, which had better not answer that it is too busy to listen.
            return Ok(Plan::Drop);
        }
        if caller.is_none() && !self.caller_waits(&candidate.inbound.source) {
            return Ok(Plan::Refuse(TurnError::QueueFull));
        }
        match self.tapes.store().accepted(&candidate.key).await? {
            // It is no event more: its commit will say so.
            Some(_) => Ok(Plan::Turn(arrival)),
            None => Err(HostError::QueueFull),
        }
    }

    /// Whether a command only looks, and may run beside a turn.
    fn only_looks(&self, line: &str) -> bool {
        let name = line.split_whitespace().next().unwrap_or_default();
        self.tool(name).is_some_and(|tool| tool.only_looks() && tool.spec().name.as_str() == name)
    }

    /// How the event's channel takes things in, unless the configuration says otherwise.
    pub(crate) fn intake(&self, event: &Event) -> Intake {
        let own = self.channel(&event.source).map(|channel| channel.intake()).unwrap_or_default();
        let set = self.settings.intakes.get(&event.source).copied().unwrap_or_default();
        Intake { admission: set.admission.or(own.admission), debounce: set.debounce.or(own.debounce) }
    }

    /// Commits the event: the tape begun if it is new, the entry that tells of it, the inbox row, and the lease if it
    /// is to be had; or its outcome, if it has one already.
    async fn commit_event(&self, candidate: &Candidate, reservation: &Reservation) -> Result<Accepted, HostError> {
        let Candidate { inbound, key, session, tape, plan, raw } = candidate;
        let owner = self.settings.owner.name().to_owned();
        for _ in 0..RACES {
            let now = self.settings.clock.now();
            // The end of the turn makes this durable too, and nothing is heard of it before.
            let hears_later = matches!(plan, Plan::Turn(_)) && inbound.extensions().get::<HearsOnlyAnswer>().is_some();
            let promise = if hears_later { Promise::Ordered } else { Promise::Durable };
            let mut batch = Batch { promise, ..Batch::new() };
            batch.push(Fact::EnsureTape(NewTape {
                name: tape.clone(),
                session: Some(session.clone()),
                workspace: Some(self.workspace_id.clone()),
                head: EntryId(0),
            }));
            if !self.is_begun(tape) {
                // Read before the anchor is looked for: whoever begins the tape in between moves it on.
                let head = self.tapes.record(tape).await?.map(|record| record.head).unwrap_or_default();
                if self.tapes.last_anchor(tape).await?.is_none() {
                    batch.expect.push(Expect::Head { tape: tape.clone(), head });
                    for draft in Draft::session_start() {
                        batch.append(tape, Draft { date: Some(now.into()), ..draft });
                    }
                }
            }
            let mut told = json!({ "event": **inbound });
            match raw {
                Some(Raw::Short(text)) => told[RAW] = text.as_str().into(),
                Some(Raw::Blob { hash, bytes }) => {
                    batch.push(Fact::PutBlob { hash: hash.clone(), bytes: Arc::clone(bytes) });
                }
                None => {}
            }
            if let Some(own) = inbound.extensions().get::<OwnBinding>() {
                told[OWN_BINDING] = json!(own.0);
            }
            if let Plan::Refuse(error) = plan {
                told[WITHOUT_TURN] = error.public().into();
            }
            let told = Draft::event("event.accepted", told).hidden();
            let entry = batch.append(tape, Draft { date: Some(now.into()), ..told });
            batch.push(Fact::Accept {
                key: key.clone(),
                session: session.clone(),
                tape: tape.clone(),
                entry,
                at: now,
                owner: owner.clone(),
            });
            let mut lease = None;
            match plan {
                Plan::Turn(_) if reservation.takes_lease => {
                    lease = Some(batch.push(self.renewal(&reservation.claim)));
                }
                Plan::Turn(_) | Plan::Refuse(_) => {}
                Plan::Drop => {
                    batch.push(Fact::Settle { key: key.clone(), outcome: Outcome::Dropped, run_id: None });
                }
            }
            match self.tapes.commit(batch).await {
                Err(StoreError::Moved { .. }) => {}
                Err(error) => return Err(error.into()),
                Ok(committed) => {
                    self.begun(tape);
                    let lease = lease.and_then(|position: usize| committed.assigned.get(position));
                    return Ok(Accepted {
                        entry: committed.entry(entry).unwrap_or_default(),
                        lease: reservation.claim.fence(lease),
                    });
                }
            }
        }
        Err(StoreError::Moved { tape: tape.clone() }.into())
    }
}

#[cfg(test)]
#[path = "gateway_tests.rs"]
mod tests;
