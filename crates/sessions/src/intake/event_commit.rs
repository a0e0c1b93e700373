//! Commit of an accepted event.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use capstan_hooks::ReplyOnlyCaller;
use capstan_protocol::{BlobHash, Clock, EntryId, Event, Outcome, SessionId, TapeName, WorkspaceId};
use capstan_tape::{
    Batch, BatchPrecondition, CommitDurability, EntryDraft, EventAcceptance, Fact, NewTape, StoreError, StoredBinding,
    TapeEvent, TapeRepository,
};

use super::admission::AcceptancePlan;
use crate::HostError;
use crate::accepted_event::AcceptedEvent;
use crate::active_sessions::SessionReservation;
use crate::lease::LeaseOwner;
use crate::lease_keeper::LeaseKeeper;

/// Maximum size of a raw payload that is stored inside the acceptance entry. A larger one is stored as a blob.
const MAX_INLINE_RAW_BYTES: usize = 1024;
/// Maximum number of retries when another process writes to the same tape.
const ACCEPT_CONFLICT_RETRIES: usize = 16;
/// Maximum number of tapes that are remembered to have an anchor.
const MAX_REMEMBERED_TAPES: usize = 100_000;

/// Storage of the raw payload that the platform sent.
pub(super) enum RawPayloadStorage {
    /// Inside the acceptance entry.
    Inline(String),
    /// As a blob.
    Blob { hash: BlobHash, bytes: Arc<[u8]> },
}

impl RawPayloadStorage {
    pub(super) fn new(hash: BlobHash, bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) if text.len() <= MAX_INLINE_RAW_BYTES => Self::Inline(text.to_owned()),
            _ => Self::Blob { hash, bytes: bytes.into() },
        }
    }
}

/// Cache of tapes that have an anchor. A tape never loses its anchor; tapes outside the cache are looked up.
#[derive(Debug, Default)]
pub(crate) struct AnchoredTapes(Mutex<HashSet<TapeName>>);

impl AnchoredTapes {
    fn contains(&self, tape: &TapeName) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(tape)
    }

    fn insert(&self, tape: &TapeName) {
        let mut tapes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tapes.len() >= MAX_REMEMBERED_TAPES {
            tapes.clear();
        }
        tapes.insert(tape.clone());
    }
}

/// Commits accepted events.
pub(crate) struct EventCommitter {
    pub(crate) tapes: TapeRepository,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) owner: LeaseOwner,
    pub(crate) clock: Clock,
    pub(crate) leases: LeaseKeeper,
    pub(crate) anchored_tapes: AnchoredTapes,
}

impl EventCommitter {
    /// Commits the event: the start of a new tape, the acceptance entry, the inbox row, and the lease if it is free, or
    /// the outcome of a dropped event. Sets the entry and the lease of the event.
    pub(super) async fn commit_event(
        &self,
        event: &mut AcceptedEvent,
        tape: &TapeName,
        plan: &AcceptancePlan,
        raw: Option<&RawPayloadStorage>,
        reservation: &SessionReservation,
    ) -> Result<(), HostError> {
        let AcceptedEvent { inbound, key, session, own_binding, .. } = &*event;
        let owner = self.owner.name().to_owned();
        for _ in 0..ACCEPT_CONFLICT_RETRIES {
            let now = self.clock.now();
            // A reply-only caller is acknowledged after the commit of the turn, which makes this one durable too.
            let is_acknowledged_later =
                matches!(plan, AcceptancePlan::Turn(_)) && inbound.extensions().get::<ReplyOnlyCaller>().is_some();
            let durability = if is_acknowledged_later { CommitDurability::Ordered } else { CommitDurability::Durable };
            let mut batch = Batch { durability, ..Batch::new() };
            batch.push(Fact::EnsureTape(NewTape {
                name: tape.clone(),
                session: Some(session.clone()),
                workspace: Some(self.workspace_id.clone()),
                head: EntryId(0),
            }));
            if !self.anchored_tapes.contains(tape) {
                // Read before the search for the anchor: a process that starts the tape in between moves the head, and
                // the commit fails.
                let record = self.tapes.record(tape).await?;
                if record.is_none() {
                    self.check_is_no_fork(session).await?;
                }
                let head = record.map(|record| record.head).unwrap_or_default();
                if self.tapes.last_anchor(tape).await?.is_none() {
                    batch.preconditions.push(BatchPrecondition::TapeHead { tape: tape.clone(), head });
                    for draft in EntryDraft::session_start() {
                        batch.append(tape, EntryDraft { date: Some(now.into()), ..draft });
                    }
                }
            }
            let mut accepted = EventAcceptance::new(Event::clone(inbound));
            accepted.origin = Some(inbound.origin());
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
                    lease = Some(batch.push(self.leases.renewal_fact(&reservation.claim)));
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
                    self.anchored_tapes.insert(tape);
                    let lease = lease.and_then(|position: usize| committed.outputs.get(position));
                    event.lease = reservation.claim.fence(lease);
                    event.entry = committed.entry_id(entry).unwrap_or_default();
                    event.inbound = event.inbound.with_entry(event.entry);
                    return Ok(());
                }
            }
        }
        Err(StoreError::HeadMoved { tape: tape.clone() }.into())
    }

    /// Rejects a new session with the name of a fork: its tape would be unrelated to the fork, and hidden by it wherever
    /// a tape is named.
    async fn check_is_no_fork(&self, session: &SessionId) -> Result<(), HostError> {
        let Ok(name) = TapeName::parse(session.as_str()) else { return Ok(()) };
        match self.tapes.record(&name).await? {
            Some(record) if record.fork.is_some() => Err(HostError::SessionIsFork { session: session.clone() }),
            _ => Ok(()),
        }
    }
}
