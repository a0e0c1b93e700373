//! Effect of a batch, implemented once for all stores.
//!
//! A store implements [`RowAccess`] and makes [`apply`] atomic: if it fails, the store rolls back all changes.

use capstan_protocol::{EntryId, EventKey, TapeName, Timestamp};
use serde_json::Value;

use crate::nesting_limit::{is_too_deep, too_deep_error};
use crate::{
    Batch, BatchPrecondition, ChainHash, CommitReceipt, Entry, EntryDraft, EntryRef, EventIngestion, Fact, FactOutput,
    Fence, ForkPoint, ForkState, InFlightEvent, LeaseEpoch, LeaseRecord, NewTape, QuotaUpdate, RunRecord, StoreError,
    TapeGeneration, TapeRecord,
};
use lease::{LeaseRequest, grant_lease};
pub use row_access::RowAccess;

mod key_value;
mod lease;
mod row_access;
mod run;

/// Applies a batch to rows. If it fails, the rows may be partially written, and the store must roll them back.
///
/// `now` is the date of entries without one. The batch is taken as `&mut` only to avoid copies: it can be applied again
/// after a rollback.
pub fn apply(rows: &mut dyn RowAccess, batch: &mut Batch, now: Timestamp) -> Result<CommitReceipt, StoreError> {
    if let Some(fence) = &batch.fence {
        check_fence(rows, fence)?;
    }
    for precondition in &batch.preconditions {
        check_precondition(rows, precondition)?;
    }
    let mut applier = BatchApplier {
        rows,
        now,
        reject_replicated: batch.reject_replicated,
        tapes: Vec::new(),
        changed_events: Vec::new(),
        outputs: Vec::with_capacity(batch.facts.len()),
    };
    for (position, fact) in batch.facts.iter_mut().enumerate() {
        applier.rows.begin_fact(position);
        let output = applier.apply(fact)?;
        applier.outputs.push(output);
    }
    applier.finish()
}

fn check_fence(rows: &mut dyn RowAccess, fence: &Fence) -> Result<(), StoreError> {
    match rows.lease(&fence.tape)? {
        Some(lease) if lease.epoch == fence.epoch && lease.owner.is_some() => Ok(()),
        _ => Err(StoreError::Fenced { tape: fence.tape.clone() }),
    }
}

fn check_precondition(rows: &mut dyn RowAccess, precondition: &BatchPrecondition) -> Result<(), StoreError> {
    match precondition {
        BatchPrecondition::TapeHead { tape, head } => {
            let found = rows.tape(tape)?.map(|record| record.head).unwrap_or_default();
            if found == *head { Ok(()) } else { Err(StoreError::HeadMoved { tape: tape.clone() }) }
        }
        BatchPrecondition::NamespaceRevision { namespace, revision } => {
            let found = rows.namespace(namespace)?.map_or(0, |record| record.revision);
            if found == *revision { Ok(()) } else { Err(StoreError::NamespaceChanged { namespace: namespace.clone() }) }
        }
        BatchPrecondition::EventOwner { key, owner } => {
            let event = rows.in_flight_event(key)?;
            let is_owned = event.is_some_and(|event| event.owner.as_deref() == Some(owner.as_str()));
            if is_owned { Ok(()) } else { Err(StoreError::EventNotInFlight { key: key.clone() }) }
        }
    }
}

/// State while a batch is being applied.
struct BatchApplier<'a> {
    rows: &'a mut dyn RowAccess,
    now: Timestamp,
    reject_replicated: bool,
    /// Tapes that the batch uses. Their rows are written once, at the end.
    tapes: Vec<TapeRecord>,
    /// Changed events in flight. They are written at the end, unless they are settled by then.
    changed_events: Vec<InFlightEvent>,
    outputs: Vec<FactOutput>,
}

impl BatchApplier<'_> {
    fn apply(&mut self, fact: &mut Fact) -> Result<FactOutput, StoreError> {
        match fact {
            Fact::AppendEntry { tape, entry } => return self.append(tape, entry).map(FactOutput::Entry),
            Fact::UpdateWithinQuota(change) => return self.update_within_quota(change).map(FactOutput::WithinQuota),
            Fact::EnqueueOutbound(outbound) => return self.rows.add_outbound(outbound).map(FactOutput::Outbox),
            Fact::TakeLease { tape, owner, now, expires_at, owner_liveness } => {
                let owner_liveness = owner_liveness.as_ref();
                let request = LeaseRequest { tape, owner, now: *now, expires_at: *expires_at, owner_liveness };
                return self.take_lease(&request).map(FactOutput::Lease);
            }
            Fact::EnsureTape(tape) => self.ensure_tape(tape)?,
            Fact::ImportEntries { tape, entries } => self.import(tape, entries)?,
            Fact::MarkReplicated { tape, up_to } => {
                let record = self.tape(tape)?;
                let up_to = (*up_to).min(record.head);
                record.replicated_up_to = record.replicated_up_to.max(up_to);
                self.rows.remove_entries(tape, up_to)?;
            }
            Fact::ForkTape { fork, parent, position } => self.fork(fork, parent, *position)?,
            Fact::CloseFork { fork, is_merged } => self.close_fork(fork, *is_merged)?,
            Fact::ResetTape { tape, archive } => begin_generation(self.writable_tape(tape)?, *archive),
            Fact::AcceptEvent { key, session, tape, entry, accepted_at, owner } => {
                let is_new = self.rows.add_accepted_event(&InFlightEvent {
                    key: key.clone(),
                    session: session.clone(),
                    tape: tape.clone(),
                    entry: self.resolve(*entry)?,
                    accepted_at: *accepted_at,
                    owner: Some(owner.clone()),
                    adoptions: 0,
                    ingestion: None,
                })?;
                if !is_new {
                    return Err(StoreError::DuplicateEvent { key: key.clone() });
                }
            }
            Fact::AdoptEvent { key, from, owner, was_in_progress } => {
                let event = self.in_flight_event(key)?;
                if event.owner != *from {
                    return Err(StoreError::EventNotInFlight { key: key.clone() });
                }
                event.adoptions += u32::from(*was_in_progress);
                event.owner = Some(owner.clone());
            }
            Fact::IngestEvent { key, run_id, message } => {
                let ingestion = EventIngestion { run_id: run_id.clone(), message_entry: self.resolve(*message)? };
                self.in_flight_event(key)?.ingestion = Some(ingestion);
            }
            Fact::SettleEvent { key, outcome, run_id } => {
                self.changed_events.retain(|event| event.key != *key);
                if !self.rows.remove_in_flight_event(key)? {
                    return Err(StoreError::EventNotInFlight { key: key.clone() });
                }
                self.rows.put_outcome(key, outcome, run_id.as_ref())?;
            }
            Fact::OpenRun(record) => {
                if !self.rows.add_run(record)? {
                    return Err(StoreError::corrupt(format!("run {}", record.run_id), "it was already opened"));
                }
            }
            Fact::EndRun { run_id, status, usage, ended_at } => {
                let Some(record) = self.rows.run(run_id)? else {
                    return Err(StoreError::corrupt(format!("run {run_id}"), "it ended but was never opened"));
                };
                self.put_run(run::end_run(record, *status, usage.clone(), *ended_at))?;
            }
            Fact::StartRun { run_id } => {
                let record = self.rows.run(run_id)?.and_then(run::start_run);
                self.put_run(record)?;
            }
            Fact::RequestCancel { run_id } => {
                let record = self.rows.run(run_id)?.and_then(run::request_cancel);
                self.put_run(record)?;
            }
            Fact::AdoptOutbound { id, from, owner } => {
                if !self.rows.adopt_outbound(*id, from.as_deref(), owner)? {
                    return Err(StoreError::OutboxConflict { id: id.0 });
                }
            }
            Fact::RecordDelivery { id, status } => {
                if !self.rows.put_delivery(*id, status)? {
                    return Err(StoreError::corrupt(format!("outbox row {}", id.0), "it does not exist"));
                }
            }
            Fact::PutBlob { hash, bytes } => self.rows.put_blob(hash, bytes)?,
            Fact::RemoveBlob { hash } => self.rows.remove_blob(hash)?,
            Fact::PutState { tape, key, value } => self.put_state(tape, key, value)?,
            Fact::PutKeyValue(record) => key_value::put_key_value(self.rows, record)?,
            Fact::RemoveKeyValue { namespace, key, removed_at } => {
                key_value::remove_key_value(self.rows, namespace, key, *removed_at)?;
            }
            Fact::RegisterWorkspace { path, identity } => self.rows.put_workspace(path, identity)?,
            Fact::ReleaseLease { tape, owner } => {
                if let Some(lease) = self.rows.lease(tape)?.filter(|lease| lease.owner.as_ref() == Some(owner)) {
                    self.rows.put_lease(&LeaseRecord { owner: None, ..lease })?;
                }
            }
        }
        Ok(FactOutput::Nothing)
    }

    fn finish(self) -> Result<CommitReceipt, StoreError> {
        for record in &self.tapes {
            self.rows.put_tape(record)?;
        }
        for event in &self.changed_events {
            self.rows.put_in_flight_event(event)?;
        }
        Ok(CommitReceipt { outputs: self.outputs })
    }

    /// Tape with the changes of the batch so far.
    fn find_tape(&mut self, name: &TapeName) -> Result<Option<&mut TapeRecord>, StoreError> {
        let position = match self.tapes.iter().position(|record| record.name == *name) {
            Some(position) => position,
            None => match self.rows.tape(name)? {
                Some(record) => {
                    self.tapes.push(record);
                    self.tapes.len() - 1
                }
                None => return Ok(None),
            },
        };
        Ok(self.tapes.get_mut(position))
    }

    fn tape(&mut self, name: &TapeName) -> Result<&mut TapeRecord, StoreError> {
        self.find_tape(name)?.ok_or_else(|| StoreError::TapeNotFound { tape: name.clone() })
    }

    /// Tape that accepts entries: not a closed fork, and not one that this writer must not touch.
    fn writable_tape(&mut self, name: &TapeName) -> Result<&mut TapeRecord, StoreError> {
        let reject_replicated = self.reject_replicated;
        let record = self.tape(name)?;
        match &record.fork {
            Some(fork) if fork.state != ForkState::Open => Err(StoreError::ForkClosed { tape: name.clone() }),
            _ if reject_replicated && record.replicated_up_to > EntryId(0) => {
                Err(StoreError::StoredElsewhere { tape: name.clone() })
            }
            _ => Ok(record),
        }
    }

    /// Writes a new tape at once, because its entries refer to it.
    fn add_tape(&mut self, record: TapeRecord) -> Result<(), StoreError> {
        self.rows.put_tape(&record)?;
        self.tapes.push(record);
        Ok(())
    }

    fn ensure_tape(&mut self, tape: &NewTape) -> Result<(), StoreError> {
        if let Some(record) = self.find_tape(&tape.name)? {
            // A tape that was imported or created elsewhere gets its session when the session first uses it.
            record.session = record.session.take().or_else(|| tape.session.clone());
            record.workspace = record.workspace.take().or_else(|| tape.workspace.clone());
            return Ok(());
        }
        if tape.head.0 > MAX_ENTRY_ID {
            return Err(StoreError::OutOfOrder { tape: tape.name.clone(), id: tape.head.0, head: 0 });
        }
        self.add_tape(TapeRecord {
            name: tape.name.clone(),
            session: tape.session.clone(),
            workspace: tape.workspace.clone(),
            head: tape.head,
            generation: 1,
            begins_after: EntryId(0),
            past_generations: Vec::new(),
            // The entries up to the head are in the external tape store.
            replicated_up_to: tape.head,
            brought_along: tape.head,
            fork: None,
            head_hash: ChainHash::START,
        })
    }

    fn append(&mut self, tape: &TapeName, draft: &mut EntryDraft) -> Result<EntryId, StoreError> {
        let record = self.writable_tape(tape)?;
        let id = record.head.next();
        record.head = id;
        let named_messages = draft.named_messages.clone();
        let taken = std::mem::replace(draft, EntryDraft::new(draft.kind.clone(), Value::Null));
        let entry = taken.into_entry(id, self.now, &self.outputs);
        let result = self.put_entry(tape, &entry);
        *draft = EntryDraft { named_messages, ..EntryDraft::from(entry) };
        result.map(|()| id)
    }

    fn import(&mut self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError> {
        let record = self.writable_tape(tape)?;
        let head = head_after_import(record, entries)?;
        if head.0 - record.head.0 != entries.len() as u64 {
            record.brought_along = head;
        }
        record.head = head;
        entries.iter().try_for_each(|entry| self.put_entry(tape, entry))
    }

    fn put_entry(&mut self, tape: &TapeName, entry: &Entry) -> Result<(), StoreError> {
        let values = entry.meta.values().chain(entry.extra.values());
        if std::iter::once(&entry.payload).chain(values).any(is_too_deep) {
            return Err(too_deep_error(format!("entry {} for tape {tape}", entry.id)));
        }
        let content = self.rows.content_digest(entry);
        let record = self.tape(tape)?;
        let hash = record.head_hash.link(tape.as_str(), entry.id, entry.date.as_str(), &content);
        record.head_hash = hash;
        self.rows.put_entry(tape, entry, hash)
    }

    fn fork(&mut self, fork: &TapeName, parent: &TapeName, position: EntryId) -> Result<(), StoreError> {
        if self.find_tape(fork)?.is_some() {
            return Err(StoreError::TapeExists { tape: fork.clone() });
        }
        let record = fork_record(self.tape(parent)?, fork.clone(), position);
        let head_hash = self.chain_hash(parent, record.head)?;
        self.add_tape(TapeRecord { head_hash, ..record })
    }

    /// Hash of the newest entry of a tape up to a position, which may be an entry of an ancestor.
    fn chain_hash(&mut self, tape: &TapeName, position: EntryId) -> Result<ChainHash, StoreError> {
        let (mut tape, mut position) = (tape.clone(), position);
        loop {
            let record = self.tape(&tape)?;
            if position >= record.head {
                return Ok(record.head_hash);
            }
            let fork = record.fork.clone();
            if let Some(link) = self.rows.chain_link(&tape, position)? {
                return Ok(link.hash);
            }
            let Some(fork) = fork else { return Ok(ChainHash::START) };
            (tape, position) = (fork.parent, position.min(fork.position));
        }
    }

    fn close_fork(&mut self, fork: &TapeName, is_merged: bool) -> Result<(), StoreError> {
        let point =
            self.writable_tape(fork)?.fork.as_mut().ok_or_else(|| StoreError::TapeNotFound { tape: fork.clone() })?;
        point.state = if is_merged { ForkState::Merged } else { ForkState::Discarded };
        Ok(())
    }

    /// Event in flight with the changes of the batch so far, to be changed.
    fn in_flight_event(&mut self, key: &EventKey) -> Result<&mut InFlightEvent, StoreError> {
        let position = if let Some(position) = self.changed_events.iter().position(|event| event.key == *key) {
            position
        } else {
            let event =
                self.rows.in_flight_event(key)?.ok_or_else(|| StoreError::EventNotInFlight { key: key.clone() })?;
            self.changed_events.push(event);
            self.changed_events.len() - 1
        };
        Ok(&mut self.changed_events[position])
    }

    fn resolve(&self, entry: EntryRef) -> Result<EntryId, StoreError> {
        let unresolved = || StoreError::corrupt("a batch", format!("{entry:?} refers to no previous entry"));
        entry.resolve(&self.outputs).ok_or_else(unresolved)
    }

    fn put_state(&mut self, tape: &TapeName, key: &str, value: &Value) -> Result<(), StoreError> {
        if is_too_deep(value) {
            return Err(too_deep_error(format!("state {key} of tape {tape}")));
        }
        self.rows.put_state(tape, key, Some(value).filter(|value| !value.is_null()))
    }

    /// Applies a quota update and appends its entry. Returns false if the quota is exceeded.
    fn update_within_quota(&mut self, update: &mut QuotaUpdate) -> Result<bool, StoreError> {
        let is_applied = key_value::update_within_quota(self.rows, update)?;
        let entry = if is_applied { Some(&mut update.accepted_entry) } else { update.rejected_entry.as_mut() };
        entry.map(|entry| self.append(&update.tape, entry)).transpose()?;
        Ok(is_applied)
    }

    /// Writes a run, if it has changed.
    fn put_run(&mut self, changed: Option<RunRecord>) -> Result<(), StoreError> {
        changed.map_or(Ok(()), |record| self.rows.put_run(&record))
    }

    fn take_lease(&mut self, request: &LeaseRequest<'_>) -> Result<Option<LeaseEpoch>, StoreError> {
        let current = self.rows.lease(request.tape)?;
        let Some(lease) = grant_lease(current.as_ref(), request) else { return Ok(None) };
        self.rows.put_lease(&lease)?;
        Ok(Some(lease.epoch))
    }
}

/// Greatest id of an imported entry. Stores use signed 64-bit integers, and the next id must fit.
const MAX_ENTRY_ID: u64 = i64::MAX as u64 - 1;

/// Head of a tape after an import; an error if the ids do not increase.
fn head_after_import(record: &TapeRecord, entries: &[Entry]) -> Result<EntryId, StoreError> {
    entries.iter().try_fold(record.head, |head, entry| {
        if entry.id > head && entry.id.0 <= MAX_ENTRY_ID {
            return Ok(entry.id);
        }
        Err(StoreError::OutOfOrder { tape: record.name.clone(), id: entry.id.0, head: head.0 })
    })
}

fn begin_generation(record: &mut TapeRecord, archived: bool) {
    record.past_generations.push(TapeGeneration {
        number: record.generation,
        begins_after: record.begins_after,
        up_to: record.head,
        archived,
    });
    record.generation += 1;
    record.begins_after = record.head;
}

/// Record of a new fork. The fork sees the generation that contains its position, which need not be the current one.
fn fork_record(parent: &TapeRecord, fork: TapeName, position: EntryId) -> TapeRecord {
    let position = position.min(parent.head);
    let begins_after = if position >= parent.begins_after {
        parent.begins_after
    } else {
        let contains_position = |past: &&TapeGeneration| past.begins_after < position && position <= past.up_to;
        parent.past_generations.iter().find(contains_position).map(|past| past.begins_after).unwrap_or_default()
    };
    TapeRecord {
        name: fork,
        // A session has only one tape, which is the parent.
        session: None,
        workspace: None,
        head: position,
        generation: 1,
        begins_after,
        past_generations: Vec::new(),
        replicated_up_to: EntryId(0),
        brought_along: EntryId(0),
        fork: Some(ForkPoint { parent: parent.name.clone(), position, state: ForkState::Open }),
        head_hash: ChainHash::START,
    }
}
