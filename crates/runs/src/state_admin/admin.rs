//! Reads and changes of stored state on behalf of an administrator.

use std::sync::Arc;

use capstan_protocol::{Clock, StateLimits, Timestamp};
use capstan_tape::{
    Batch, BatchPrecondition, EntryDraft, Fact, KeyValueRecord, NamespaceClearing, NamespaceEdit, NamespaceRecord,
    NewTape, StateKeyEdit, StateKeyRemoval, Store, StoreError, TapeAddress, TapeEvent, TapeRepository, tape_name,
};
use serde_json::Value;

use super::{ContentLocation, MAX_STATE_KEY_LEN, RunnerNamespace, StateAdminError};
use crate::nesting::{self, NestingLimit as _};

/// Retries of a change that a run or another process preceded.
const STATE_ADMIN_CONFLICT_RETRIES: usize = 16;
/// Shortest prefix that selects a namespace by its id.
const MIN_NAMESPACE_ID_LEN: usize = 4;

/// State administration: the namespaces in the store of a host.
pub struct StateAdmin {
    store: Arc<dyn Store>,
    tapes: TapeRepository,
    clock: Clock,
    /// Tape on which changes are recorded.
    system_tape: TapeAddress,
}

/// A namespace that holds at least one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceSummary {
    /// The namespace.
    pub namespace: RunnerNamespace,
    /// Number of keys.
    pub key_count: u64,
    /// Size of all keys and values together, in bytes.
    pub bytes: u64,
    /// Time of the last change.
    pub changed_at: Timestamp,
    /// Number of changes so far, for optimistic locking.
    revision: u64,
}

impl StateAdmin {
    /// Administers the namespaces in the store of `tapes`. Changes are recorded on the tape `system`.
    pub fn new(tapes: TapeRepository, clock: Clock, system: TapeAddress) -> Self {
        Self { store: Arc::clone(tapes.store()), tapes, clock, system_tape: system }
    }

    /// All namespaces that hold at least one key, by name.
    pub async fn list(&self) -> Result<Vec<NamespaceSummary>, StoreError> {
        let summarize = |record: NamespaceRecord| {
            let NamespaceRecord { space: name, rows: key_count, bytes, at: changed_at, revision } = record;
            Some(NamespaceSummary { namespace: RunnerNamespace::parse(&name)?, key_count, bytes, changed_at, revision })
        };
        let mut found = Vec::new();
        for prefix in ["state:", "storage:"] {
            let mut records = self.store.namespaces(prefix);
            while let Some(record) = records.next().await? {
                found.extend(Some(record).filter(|record| record.rows > 0).and_then(summarize));
            }
        }
        Ok(found)
    }

    /// Finds a namespace by its id or a prefix of it.
    pub async fn find(&self, wanted: &str) -> Result<NamespaceSummary, StateAdminError> {
        let unknown = || StateAdminError::UnknownNamespace { wanted: wanted.to_owned() };
        if wanted.len() < MIN_NAMESPACE_ID_LEN {
            let (wanted, min_len) = (wanted.to_owned(), MIN_NAMESPACE_ID_LEN);
            return Err(StateAdminError::ShortNamespaceId { wanted, min_len });
        }
        let mut found: Vec<NamespaceSummary> = self.list().await?;
        found.retain(|summary| summary.namespace.id().starts_with(wanted));
        match (found.len(), found.pop()) {
            (1, Some(summary)) => Ok(summary),
            (0, _) => Err(unknown()),
            (count, _) => Err(StateAdminError::Ambiguous { wanted: wanted.to_owned(), count }),
        }
    }

    /// Records of a namespace, by key.
    pub async fn values(&self, namespace: &RunnerNamespace) -> Result<Vec<KeyValueRecord>, StoreError> {
        self.store.key_values(&namespace.stored_name()).collect().await
    }

    /// Record of one key.
    pub async fn get(&self, namespace: &RunnerNamespace, key: &str) -> Result<KeyValueRecord, StateAdminError> {
        let record = self.store.key_value(&namespace.stored_name(), key).await?;
        record.ok_or_else(|| StateAdminError::UnknownKey { namespace: namespace.id(), key: key.to_owned() })
    }

    /// Stores a value under a key, within `limits`.
    pub async fn set(
        &self,
        namespace: &RunnerNamespace,
        key: &str,
        value: Value,
        limits: StateLimits,
    ) -> Result<(), StateAdminError> {
        check_value(namespace, key, &value, limits)?;
        let edit = StateKeyEdit { key: key.to_owned(), bytes: value.to_string().len() };
        let change = NamespaceChange { event: TapeEvent::StateSet, namespace, details: edit };
        self.commit_with_retry(&change, |before| {
            let (name, at) = (namespace.stored_name(), self.clock.now());
            let record = KeyValueRecord { space: name, key: key.to_owned(), value: value.clone(), at, by: None };
            let others = || before.iter().filter(|record| record.key != key);
            let (keys, bytes) = (
                others().count() as u64 + 1,
                others().map(KeyValueRecord::size_bytes).sum::<u64>() + record.size_bytes(),
            );
            if keys > limits.keys || bytes > limits.total_bytes {
                let (max_keys, max_bytes) = (limits.keys, limits.total_bytes);
                let detail =
                    format!("the namespace would have {keys} of {max_keys} keys and {bytes} of {max_bytes} bytes");
                return Err(StateAdminError::TooLarge { detail });
            }
            Ok(vec![Fact::PutKeyValue(record)])
        })
        .await
        .map(drop)
    }

    /// Removes a key.
    pub async fn remove(&self, namespace: &RunnerNamespace, key: &str) -> Result<(), StateAdminError> {
        let removal = StateKeyRemoval { key: key.to_owned() };
        let change = NamespaceChange { event: TapeEvent::StateRemoved, namespace, details: removal };
        self.commit_with_retry(&change, |before| {
            if !before.iter().any(|record| record.key == key) {
                return Err(StateAdminError::UnknownKey { namespace: namespace.id(), key: key.to_owned() });
            }
            Ok(self.removal_facts(namespace, before.iter().filter(|record| record.key == key)))
        })
        .await
        .map(drop)
    }

    /// Removes all keys of a namespace and returns their number.
    pub async fn clear(&self, namespace: &RunnerNamespace, reason: &str) -> Result<usize, StateAdminError> {
        let change = NamespaceChange::clearing(namespace, reason);
        self.commit_with_retry(&change, |before| Ok(self.removal_facts(namespace, before))).await
    }

    /// Clears a namespace if it has not changed since it was listed; returns false if it has.
    pub async fn clear_if_unchanged(&self, summary: &NamespaceSummary, reason: &str) -> Result<bool, StateAdminError> {
        let facts = self.removal_facts(&summary.namespace, &self.values(&summary.namespace).await?);
        let change = NamespaceChange::clearing(&summary.namespace, reason);
        match self.commit(&change, summary.revision, facts).await {
            Err(StoreError::NamespaceChanged { .. }) => Ok(false),
            committed => Ok(committed.map(|_| true)?),
        }
    }

    /// Facts that remove these records, with the contents they refer to.
    fn removal_facts<'a>(
        &self,
        namespace: &RunnerNamespace,
        records: impl IntoIterator<Item = &'a KeyValueRecord>,
    ) -> Vec<Fact> {
        let (name, at) = (namespace.stored_name(), self.clock.now());
        let remove = |record: &'a KeyValueRecord| {
            let content = Some(record)
                .filter(|_| matches!(namespace, RunnerNamespace::Storage { .. }))
                .and_then(ContentLocation::removal_fact);
            std::iter::once(Fact::RemoveKeyValue { namespace: name.clone(), key: record.key.clone(), removed_at: at })
                .chain(content)
        };
        records.into_iter().flat_map(remove).collect()
    }

    /// Commits the facts that `derive_facts` returns for the present records, and retries if the namespace changed in
    /// between. Returns the number of changed keys.
    async fn commit_with_retry<T: Clone>(
        &self,
        change: &NamespaceChange<'_, T>,
        derive_facts: impl Fn(&[KeyValueRecord]) -> Result<Vec<Fact>, StateAdminError>,
    ) -> Result<usize, StateAdminError> {
        let namespace = change.namespace;
        let stored_name = namespace.stored_name();
        for _ in 0..STATE_ADMIN_CONFLICT_RETRIES {
            let revision = self.store.namespace(&stored_name).await?.map_or(0, |record| record.revision);
            let facts = derive_facts(&self.values(namespace).await?)?;
            match self.commit(change, revision, facts).await {
                Err(StoreError::NamespaceChanged { .. }) => {}
                committed => return Ok(committed?),
            }
        }
        Err(StoreError::NamespaceChanged { namespace: stored_name }.into())
    }

    /// Commits the facts if the namespace still has this revision. Returns the number of changed keys.
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
        let namespace = change.namespace;
        let mut batch = Batch { facts, ..Batch::new() };
        batch.preconditions.push(BatchPrecondition::NamespaceRevision { namespace: namespace.stored_name(), revision });
        let (tape, session) = (tape_name(&self.system_tape), Some(self.system_tape.session.clone()));
        let workspace = Some(self.system_tape.workspace.clone());
        batch.push(Fact::EnsureTape(NewTape { session, workspace, ..NewTape::without_session(tape.clone()) }));
        // The entry names the key, never the value: values may be private.
        let event = (change.event)(NamespaceEdit {
            space: namespace.id(),
            name: namespace.stored_name(),
            keys: count,
            change: change.details.clone(),
        });
        batch.append(&tape, EntryDraft { date: Some(self.clock.now().into()), ..event.into() });
        self.tapes.commit(batch).await.map(|_| count)
    }
}

/// A change of a namespace, and the tape event that records it.
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

/// Rejects values that a runner could not have stored there.
fn check_value(
    namespace: &RunnerNamespace,
    key: &str,
    value: &Value,
    limits: StateLimits,
) -> Result<(), StateAdminError> {
    let invalid = |detail: String| Err(StateAdminError::Invalid { detail });
    if let RunnerNamespace::Storage { .. } = namespace {
        return invalid("only runners write contents to storage".to_owned());
    }
    if key.is_empty() || key.len() > MAX_STATE_KEY_LEN {
        return invalid(format!("a state key has 1 to {MAX_STATE_KEY_LEN} bytes"));
    }
    if value.is_null() {
        return invalid("null cannot be stored; use `capstan state remove` to remove a key".to_owned());
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
