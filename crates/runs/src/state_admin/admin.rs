//! The spaces as they are kept.

use std::sync::Arc;

use capstan_protocol::{Clock, StateLimits, Timestamp};
use capstan_tape::{
    Batch, BatchPrecondition, EntryDraft, Fact, KeyValueRecord, NamespaceClearing, NamespaceEdit, NamespaceRecord,
    NewTape, StateKeyEdit, StateKeyRemoval, Store, StoreError, TapeAddress, TapeEvent, TapeRepository, tape_name,
};
use serde_json::Value;

use super::{ContentLocation, MAX_STATE_KEY_LEN, RunnerNamespace, StateAdminError};
use crate::nesting::{self, NestingLimit as _};

/// How often a change is tried again that a run or another process came before.
const STATE_ADMIN_CONFLICT_RETRIES: usize = 16;
/// How many letters of a space's id are enough to name it.
const MIN_NAMESPACE_ID_LEN: usize = 4;

/// The spaces of a host, in its store.
pub struct StateAdmin {
    store: Arc<dyn Store>,
    tapes: TapeRepository,
    clock: Clock,
    /// Where changes are told of.
    system_tape: TapeAddress,
}

/// A space that something is kept in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceSummary {
    /// The space.
    pub namespace: RunnerNamespace,
    /// How many keys it has.
    pub key_count: u64,
    /// How much they and their values count for together.
    pub bytes: u64,
    /// When it changed last.
    pub changed_at: Timestamp,
    /// How often it has changed.
    revision: u64,
}

impl StateAdmin {
    /// The spaces beneath these tapes. Changes are told of on this one.
    pub fn new(tapes: TapeRepository, clock: Clock, system: TapeAddress) -> Self {
        Self { store: Arc::clone(tapes.store()), tapes, clock, system_tape: system }
    }

    /// Every space that something is kept in, by name.
    pub async fn list(&self) -> Result<Vec<NamespaceSummary>, StoreError> {
        let held = |record: NamespaceRecord| {
            let NamespaceRecord { space, rows, bytes, at, revision } = record;
            Some(NamespaceSummary {
                namespace: RunnerNamespace::parse(&space)?,
                key_count: rows,
                bytes,
                changed_at: at,
                revision,
            })
        };
        let mut found = Vec::new();
        for prefix in ["state:", "storage:"] {
            let mut records = self.store.namespaces(prefix);
            while let Some(record) = records.next().await? {
                found.extend(Some(record).filter(|record| record.rows > 0).and_then(held));
            }
        }
        Ok(found)
    }

    /// The space of an id, or of the beginning of one.
    pub async fn find(&self, wanted: &str) -> Result<NamespaceSummary, StateAdminError> {
        let unknown = || StateAdminError::UnknownNamespace { wanted: wanted.to_owned() };
        if wanted.len() < MIN_NAMESPACE_ID_LEN {
            return Err(unknown());
        }
        let mut found: Vec<NamespaceSummary> = self.list().await?;
        found.retain(|held| held.namespace.id().starts_with(wanted));
        match (found.len(), found.pop()) {
            (1, Some(held)) => Ok(held),
            (0, _) => Err(unknown()),
            (count, _) => Err(StateAdminError::Ambiguous { wanted: wanted.to_owned(), count }),
        }
    }

    /// What is kept in a space, by key.
    pub async fn values(&self, space: &RunnerNamespace) -> Result<Vec<KeyValueRecord>, StoreError> {
        self.store.key_values(&space.stored_name()).collect().await
    }

    /// What is kept under a key.
    pub async fn get(&self, space: &RunnerNamespace, key: &str) -> Result<KeyValueRecord, StateAdminError> {
        let kept = self.store.key_value(&space.stored_name(), key).await?;
        kept.ok_or_else(|| StateAdminError::UnknownKey { space: space.id(), key: key.to_owned() })
    }

    /// Keeps a value under a key, within these limits.
    pub async fn set(
        &self,
        space: &RunnerNamespace,
        key: &str,
        value: Value,
        limits: StateLimits,
    ) -> Result<(), StateAdminError> {
        check_value(space, key, &value, limits)?;
        let edit = StateKeyEdit { key: key.to_owned(), bytes: value.to_string().len() };
        let change = NamespaceChange { event: TapeEvent::StateSet, namespace: space, details: edit };
        self.commit_with_retry(&change, |before| {
            let (name, at) = (space.stored_name(), self.clock.now());
            let kept = KeyValueRecord { space: name, key: key.to_owned(), value: value.clone(), at, by: None };
            let others = || before.iter().filter(|kept| kept.key != key);
            let (keys, bytes) = (
                others().count() as u64 + 1,
                others().map(KeyValueRecord::size_bytes).sum::<u64>() + kept.size_bytes(),
            );
            if keys > limits.keys || bytes > limits.total_bytes {
                let (most, most_bytes) = (limits.keys, limits.total_bytes);
                let detail = format!("the space would have {keys} of {most} keys and {bytes} of {most_bytes} bytes");
                return Err(StateAdminError::TooLarge { detail });
            }
            Ok(vec![Fact::PutKeyValue(kept)])
        })
        .await
        .map(drop)
    }

    /// Removes a key.
    pub async fn remove(&self, space: &RunnerNamespace, key: &str) -> Result<(), StateAdminError> {
        let removal = StateKeyRemoval { key: key.to_owned() };
        let change = NamespaceChange { event: TapeEvent::StateRemoved, namespace: space, details: removal };
        self.commit_with_retry(&change, |before| {
            if !before.iter().any(|kept| kept.key == key) {
                return Err(StateAdminError::UnknownKey { space: space.id(), key: key.to_owned() });
            }
            Ok(self.removal_facts(space, before.iter().filter(|kept| kept.key == key)))
        })
        .await
        .map(drop)
    }

    /// Removes everything that is kept in a space, and says how many keys that were.
    pub async fn clear(&self, space: &RunnerNamespace, why: &str) -> Result<usize, StateAdminError> {
        let change = NamespaceChange::clearing(space, why);
        self.commit_with_retry(&change, |before| Ok(self.removal_facts(space, before))).await
    }

    /// Removes the same if the space has not changed since it was found, and says whether that is so.
    pub async fn clear_if_unchanged(&self, held: &NamespaceSummary, why: &str) -> Result<bool, StateAdminError> {
        let facts = self.removal_facts(&held.namespace, &self.values(&held.namespace).await?);
        let change = NamespaceChange::clearing(&held.namespace, why);
        match self.commit(&change, held.revision, facts).await {
            Err(StoreError::NamespaceChanged { .. }) => Ok(false),
            done => Ok(done.map(|_| true)?),
        }
    }

    /// What removes these, contents included.
    fn removal_facts<'a>(
        &self,
        space: &RunnerNamespace,
        kept: impl IntoIterator<Item = &'a KeyValueRecord>,
    ) -> Vec<Fact> {
        let (name, at) = (space.stored_name(), self.clock.now());
        let forget = |kept: &'a KeyValueRecord| {
            let content = Some(kept)
                .filter(|_| matches!(space, RunnerNamespace::Storage { .. }))
                .and_then(ContentLocation::removal_fact);
            std::iter::once(Fact::RemoveKeyValue { namespace: name.clone(), key: kept.key.clone(), removed_at: at })
                .chain(content)
        };
        kept.into_iter().flat_map(forget).collect()
    }

    /// Changes a space by what `change` makes of what is kept in it, and tells of it. Gives how many keys that were.
    async fn commit_with_retry<T: Clone>(
        &self,
        told: &NamespaceChange<'_, T>,
        change: impl Fn(&[KeyValueRecord]) -> Result<Vec<Fact>, StateAdminError>,
    ) -> Result<usize, StateAdminError> {
        let space = told.namespace;
        let stored = space.stored_name();
        for _ in 0..STATE_ADMIN_CONFLICT_RETRIES {
            let revision = self.store.namespace(&stored).await?.map_or(0, |space| space.revision);
            let facts = change(&self.values(space).await?)?;
            match self.commit(told, revision, facts).await {
                Err(StoreError::NamespaceChanged { .. }) => {}
                done => return Ok(done?),
            }
        }
        Err(StoreError::NamespaceChanged { space: stored }.into())
    }

    /// Changes a space that has changed so often before. Gives how many keys that were.
    async fn commit<T: Clone>(
        &self,
        change: &NamespaceChange<'_, T>,
        revision: u64,
        facts: Vec<Fact>,
    ) -> Result<usize, StoreError> {
        let count =
            facts.iter().filter(|fact| matches!(fact, Fact::PutKeyValue(_) | Fact::RemoveKeyValue { .. })).count();
        if count == 0 {
            return Ok(0);
        }
        let space = change.namespace;
        let mut batch = Batch { facts, ..Batch::new() };
        batch.preconditions.push(BatchPrecondition::NamespaceRevision { namespace: space.stored_name(), revision });
        let (tape, session) = (tape_name(&self.system_tape), Some(self.system_tape.session.clone()));
        let workspace = Some(self.system_tape.workspace.clone());
        batch.push(Fact::EnsureTape(NewTape { session, workspace, ..NewTape::with_name(tape.clone()) }));
        // Never the values: they are nobody else's business.
        let told = (change.event)(NamespaceEdit {
            space: space.id(),
            name: space.stored_name(),
            keys: count,
            change: change.details.clone(),
        });
        batch.append(&tape, EntryDraft { date: Some(self.clock.now().into()), ..told.into() });
        self.tapes.commit(batch).await.map(|_| count)
    }
}

/// A change of a namespace, and the event that records it.
struct NamespaceChange<'a, T> {
    event: fn(NamespaceEdit<T>) -> TapeEvent,
    namespace: &'a RunnerNamespace,
    details: T,
}

impl<'a> NamespaceChange<'a, NamespaceClearing> {
    fn clearing(namespace: &'a RunnerNamespace, reason: &str) -> Self {
        let details = NamespaceClearing { reason: reason.to_owned() };
        Self { event: TapeEvent::StateCleared, namespace, details }
    }
}

/// Refuses what no runner could have kept there.
fn check_value(space: &RunnerNamespace, key: &str, value: &Value, limits: StateLimits) -> Result<(), StateAdminError> {
    let invalid = |detail: String| Err(StateAdminError::Invalid { detail });
    if let RunnerNamespace::Storage { .. } = space {
        return invalid("contents are put into storage by runners alone".to_owned());
    }
    if key.is_empty() || key.len() > MAX_STATE_KEY_LEN {
        return invalid(format!("a key of state has 1 to {MAX_STATE_KEY_LEN} bytes"));
    }
    if value.is_null() {
        return invalid("null is no value; `capstan state remove` removes a key".to_owned());
    }
    if value.is_too_deep() {
        return invalid(nesting::nesting_error_message());
    }
    let size = value.to_string().len() as u64;
    if size > limits.value_bytes {
        return Err(StateAdminError::TooLarge {
            detail: format!("the value has {size} of {} bytes", limits.value_bytes),
        });
    }
    Ok(())
}
