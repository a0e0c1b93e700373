//! Key-value records, which are not on a tape: bindings, runner state, names of stored content.

use capstan_protocol::{RunId, TapeName, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::EntryDraft;

/// Value stored under a key of a namespace.
///
/// A namespace is a set of keys with one owner: the bindings of the host, the state of one runner for one actor. The
/// writer chooses its name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeyValueRecord {
    /// Name of the namespace.
    pub space: String,
    /// Key, unique within the namespace.
    pub key: String,
    /// The value.
    pub value: Value,
    /// Time of the write.
    pub at: Timestamp,
    /// Run that wrote the value, if any.
    pub by: Option<RunId>,
}

impl KeyValueRecord {
    /// Record to store, or `None` if the value is `null`, which removes the key.
    pub fn unless_removed(&self) -> Option<&Self> {
        Some(self).filter(|record| !record.value.is_null())
    }

    /// Size that counts towards the quota of the namespace.
    pub fn size_bytes(&self) -> u64 {
        (self.key.len() + self.value.to_string().len()) as u64
    }
}

/// Revision and size of a namespace that has, or once had, values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamespaceRecord {
    /// Name of the namespace.
    pub space: String,
    /// Number of changes.
    pub revision: u64,
    /// Number of keys.
    pub rows: u64,
    /// Size of all keys and values.
    pub bytes: u64,
    /// Time of the last change.
    pub at: Timestamp,
}

impl NamespaceRecord {
    /// Namespace that never had a value.
    pub fn empty(space: impl Into<String>, at: Timestamp) -> Self {
        Self { space: space.into(), revision: 0, rows: 0, bytes: 0, at }
    }

    /// Updates the totals after the value of a key changed.
    pub fn update_totals(&mut self, before: Option<&KeyValueRecord>, after: Option<&KeyValueRecord>) {
        self.rows = self.rows.saturating_sub(u64::from(before.is_some())) + u64::from(after.is_some());
        self.bytes = self.bytes.saturating_sub(before.map_or(0, KeyValueRecord::size_bytes))
            + after.map_or(0, KeyValueRecord::size_bytes);
    }
}

/// Changes to a namespace that are applied if the result is within the quota. See
/// [`Fact::UpdateWithinQuota`](crate::Fact::UpdateWithinQuota).
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaUpdate {
    /// Name of the namespace.
    pub namespace: String,
    /// Values, all in this namespace; `null` removes a key.
    pub changes: Vec<KeyValueRecord>,
    /// Maximum number of keys.
    pub max_rows: u64,
    /// Maximum size of all keys and values.
    pub max_bytes: u64,
    /// Tape that records the result.
    pub tape: TapeName,
    /// Entry that is appended if the changes are applied.
    pub accepted_entry: EntryDraft,
    /// Entry that is appended if the quota is exceeded, if any.
    pub rejected_entry: Option<EntryDraft>,
}

impl QuotaUpdate {
    /// Returns true if the namespace after the changes is within the quota. Removals alone are always allowed.
    pub fn is_within_quota(&self, after: &NamespaceRecord) -> bool {
        let only_removes = self.changes.iter().all(|change| change.unless_removed().is_none());
        only_removes || (after.rows <= self.max_rows && after.bytes <= self.max_bytes)
    }
}
