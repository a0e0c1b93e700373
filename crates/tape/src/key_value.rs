//! Values that are kept under a key, apart from any tape: bindings, what runners want remembered, names of contents.

use capstan_protocol::{RunId, TapeName, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::EntryDraft;

/// A value that is kept under a key of a space.
///
/// A space is a set of keys that belongs to somebody: the bindings of the host, the state of one runner for one actor.
/// Whoever writes says who that is by its name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeyValueRecord {
    /// The space.
    pub space: String,
    /// The key, unique in its space.
    pub key: String,
    /// The value.
    pub value: Value,
    /// When it was written.
    pub at: Timestamp,
    /// The run that wrote it, if one did.
    pub by: Option<RunId>,
}

impl KeyValueRecord {
    /// What remains under its key: nothing, where the value is `null`.
    pub fn unless_removed(&self) -> Option<&Self> {
        Some(self).filter(|kept| !kept.value.is_null())
    }

    /// What it counts for in its space.
    pub fn size_bytes(&self) -> u64 {
        (self.key.len() + self.value.to_string().len()) as u64
    }
}

/// What is known about a space that something was ever kept in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamespaceRecord {
    /// Its name.
    pub space: String,
    /// How often it has changed.
    pub revision: u64,
    /// How many keys it has.
    pub rows: u64,
    /// How much they and their values count for together.
    pub bytes: u64,
    /// When it changed last.
    pub at: Timestamp,
}

impl NamespaceRecord {
    /// A space that nothing was ever kept in.
    pub fn empty(space: impl Into<String>, at: Timestamp) -> Self {
        Self { space: space.into(), revision: 0, rows: 0, bytes: 0, at }
    }

    /// Counts what stands under a key, in place of what stood there before.
    pub fn update_totals(&mut self, before: Option<&KeyValueRecord>, after: Option<&KeyValueRecord>) {
        self.rows = self.rows.saturating_sub(u64::from(before.is_some())) + u64::from(after.is_some());
        self.bytes = self.bytes.saturating_sub(before.map_or(0, KeyValueRecord::size_bytes))
            + after.map_or(0, KeyValueRecord::size_bytes);
    }
}

/// Changes of a space that are made if there is room for all of them. See [`Fact::KeepWithin`](crate::Fact::KeepWithin).
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaUpdate {
    /// The space.
    pub namespace: String,
    /// The values, all of this space; `null` removes a key.
    pub changes: Vec<KeyValueRecord>,
    /// How many keys it may have.
    pub max_rows: u64,
    /// How much they and their values may count for together.
    pub max_bytes: u64,
    /// The tape that is told of it.
    pub tape: TapeName,
    /// The entry that tells of the changes.
    pub accepted_entry: EntryDraft,
    /// The entry that tells that there was no room for them, if one does.
    pub rejected_entry: Option<EntryDraft>,
}

impl QuotaUpdate {
    /// Whether the space may be like this after the changes. There is always room for taking something away.
    pub fn is_within_quota(&self, after: &NamespaceRecord) -> bool {
        let only_removes = self.changes.iter().all(|change| change.unless_removed().is_none());
        only_removes || (after.rows <= self.max_rows && after.bytes <= self.max_bytes)
    }
}
