//! Acceptance: an event is durable before its source is told so.

use capstan_hooks::args::{AdmitMessageArgs, Busy, ResolveSessionArgs};
use capstan_hooks::points::{Admission, AdmitMessage, ResolveSession};
use capstan_hooks::{HookFailure, Inbound};
use capstan_protocol::{AdmissionMode, EntryId, Event, EventKey, Outcome, SessionId, TapeName};
use capstan_tape::{AcceptedRecord, Batch, Draft, Expect, Fact, Fence, NewTape, StoreError, TapeAddress, tape_name};
use serde_json::json;

use crate::HostError;
use crate::lease::Claim;
use crate::services::Services;

/// How often acceptance is tried again when another process wrote to the same tape in between.
const RACES: usize = 16;

/// An accepted event.
pub(crate) struct Accepted {
    /// The event, its session written to it.
    pub(crate) inbound: Inbound,
    pub(crate) key: EventKey,
    pub(crate) session: SessionId,
    pub(crate) tape: TapeName,
    /// The newest entry of the tape after acceptance.
    pub(crate) head: EntryId,
    /// The claim of its turn to the session's lease.
    pub(crate) claim: Claim,
    pub(crate) next: Next,
}

/// What comes after acceptance.
pub(crate) enum Next {
    /// A turn, under this lease, or as soon as the lease can be had.
    Turn(Option<Fence>),
    /// Nothing: admission let it go, and that is recorded.
    Dropped,
    /// No turn: a hook failed before it. An event whose session could not be resolved must not run on one that may be
    /// shared.
    Refused(HookFailure),
    /// Nothing: it was accepted before.
    Duplicate(AcceptedRecord),
}

/// What is to come after acceptance, before it is known whether the event is new.
enum Plan {
    Turn,
    Drop,
    Refuse(HookFailure),
}

/// An event that is about to be accepted.
struct Candidate {
    inbound: Inbound,
    key: EventKey,
    session: SessionId,
    tape: TapeName,
    claim: Claim,
}

impl Services {
    /// Resolves the session, asks for admission, and commits the event.
    pub(crate) async fn accept(&self, inbound: Inbound) -> Result<Accepted, HostError> {
        self.check_size(&inbound)?;
        let (session, unresolved) = self.resolve_session(&inbound).await;
        let inbound = inbound.in_session(session.clone());
        let address = TapeAddress { workspace: self.workspace_id.clone(), session: session.clone() };
        let tape = tape_name(&address);
        let plan = match unresolved {
            Some(failure) => Plan::Refuse(failure),
            None => self.admit(&inbound, &session, &tape).await?,
        };
        let claim = self.settings.owner.claim(&tape);
        let candidate = Candidate { key: EventKey::from(&*inbound), inbound, session, tape, claim };
        let (head, next) = match self.commit_event(&candidate, &plan).await {
            Err(HostError::Store(StoreError::Duplicate { key })) => self.seen_before(&key).await?,
            Err(error) => return Err(error),
            Ok((head, lease)) => match plan {
                Plan::Refuse(failure) => (head, Next::Refused(failure)),
                Plan::Drop => (head, Next::Dropped),
                Plan::Turn => (head, Next::Turn(lease)),
            },
        };
        let Candidate { inbound, key, session, tape, claim } = candidate;
        Ok(Accepted { inbound, key, session, tape, head, claim, next })
    }

    fn check_size(&self, event: &Event) -> Result<(), HostError> {
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

    /// What the hooks want done with the event.
    async fn admit(&self, inbound: &Inbound, session: &SessionId, tape: &TapeName) -> Result<Plan, HostError> {
        let lease = self.tapes.store().lease(tape).await?;
        let now = self.settings.clock.now();
        let busy = lease.is_some_and(|lease| self.settings.owner.is_held(&lease, now));
        let args = AdmitMessageArgs { message: inbound.clone(), session_id: session.clone(), busy: Busy(busy) };
        Ok(match self.hooks.first::<AdmitMessage>(&args).await {
            Err(failure) => Plan::Refuse(failure),
            Ok(decided) => match decided.map(|decided| decided.value).unwrap_or_default() {
                Admission::As(AdmissionMode::Drop) if busy => Plan::Drop,
                Admission::Process | Admission::As(_) | Admission::Beside => Plan::Turn,
            },
        })
    }

    /// Commits the event: the tape begun if it is new, the entry that tells of it, the inbox row, and the lease if it
    /// is to be had.
    async fn commit_event(&self, candidate: &Candidate, plan: &Plan) -> Result<(EntryId, Option<Fence>), HostError> {
        let Candidate { inbound, key, session, tape, claim } = candidate;
        for _ in 0..RACES {
            let now = self.settings.clock.now();
            let mut batch = Batch::new();
            batch.push(Fact::EnsureTape(NewTape {
                name: tape.clone(),
                session: Some(session.clone()),
                workspace: Some(self.workspace_id.clone()),
                head: EntryId(0),
            }));
            // Read before the anchor is looked for: whoever begins the tape in between moves it on.
            let head = self.tapes.record(tape).await?.map(|record| record.head).unwrap_or_default();
            if self.tapes.last_anchor(tape).await?.is_none() {
                batch.expect.push(Expect::Head { tape: tape.clone(), head });
                for draft in Draft::session_start() {
                    batch.append(tape, Draft { date: Some(now.into()), ..draft });
                }
            }
            let told = Draft::event("event.accepted", json!({ "event": **inbound })).hidden();
            let entry = batch.append(tape, Draft { date: Some(now.into()), ..told });
            let (key, session) = (key.clone(), session.clone());
            let owner = self.settings.owner.name().to_owned();
            batch.push(Fact::Accept { key: key.clone(), session, tape: tape.clone(), entry, at: now, owner });
            let lease = match plan {
                Plan::Turn => Some(batch.push(self.lease_fact(claim).await?)),
                Plan::Drop => {
                    batch.push(Fact::Settle { key, outcome: Outcome::Dropped, run_id: None });
                    None
                }
                Plan::Refuse(_) => None,
            };
            match self.tapes.commit(batch).await {
                Err(StoreError::Moved { .. }) => {}
                Err(error) => return Err(error.into()),
                Ok(committed) => {
                    let head = committed.entry(entry).unwrap_or_default();
                    return Ok((head, claim.fence(lease.and_then(|position| committed.assigned.get(position)))));
                }
            }
        }
        Err(StoreError::Moved { tape: tape.clone() }.into())
    }

    async fn seen_before(&self, key: &EventKey) -> Result<(EntryId, Next), HostError> {
        let record = self.tapes.store().accepted(key).await?;
        let record = record.ok_or_else(|| StoreError::NotOpen { key: key.clone() })?;
        Ok((record.entry, Next::Duplicate(record)))
    }
}
