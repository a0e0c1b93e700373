//! Cache of rows that the writer wrote or read before.

use std::collections::HashMap;
use std::hash::Hash;

use capstan_protocol::{BlobHash, EventKey, RunId, TapeName};
use capstan_tape::{InFlightEvent, LeaseRecord, RunRecord, TapeRecord};
use foldhash::fast::RandomState;
use rusqlite::{Connection, Result};

/// Maximum number of cached rows of a table.
const MAX_CACHED_ROWS: usize = 4096;

/// Rows as the connection of the writer would read them in its current transaction.
///
/// # Invariants
///
/// The cache is valid while no other connection commits and no change is rolled back.
/// [`invalidate_if_changed`](Self::invalidate_if_changed) clears it after a commit of another connection, and a
/// rollback must be followed by [`clear`](Self::clear).
#[derive(Default)]
pub(super) struct RowCache {
    /// Counter of `SQLite` that changes with commits of other connections.
    data_version: i64,
    pub(super) tapes: TableCache<TapeName, TapeRecord>,
    pub(super) leases: TableCache<TapeName, LeaseRecord>,
    /// Events without an outcome.
    pub(super) in_flight: TableCache<EventKey, InFlightEvent>,
    /// Runs that have not ended.
    pub(super) runs: TableCache<RunId, RunRecord>,
    /// Stored blobs: a conversation puts the same ones with every call.
    pub(super) blobs: TableCache<BlobHash, ()>,
}

impl RowCache {
    /// Clears the cache if another connection has committed, and returns true then. Must be called after a write transaction has begun, when
    /// no other connection can commit.
    pub(super) fn invalidate_if_changed(&mut self, connection: &Connection) -> Result<bool> {
        let mut statement = connection.prepare_cached("PRAGMA data_version")?;
        let version = statement.query_row([], |row| row.get(0))?;
        let has_changed = version != self.data_version;
        if has_changed {
            self.clear();
            self.data_version = version;
        }
        Ok(has_changed)
    }

    /// Clears the cache.
    pub(super) fn clear(&mut self) {
        let version = self.data_version;
        *self = Self { data_version: version, ..Self::default() };
    }
}

/// Cached rows of one table. When the cache is full it is cleared, which costs one read for each row that is used
/// again.
pub(super) struct TableCache<K, V>(HashMap<K, V, RandomState>);

impl<K, V> Default for TableCache<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Eq + Hash + Clone, V: Clone> TableCache<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub(super) fn insert(&mut self, key: &K, value: &V) {
        if let Some(row) = self.0.get_mut(key) {
            row.clone_from(value);
            return;
        }
        if self.0.len() >= MAX_CACHED_ROWS {
            self.0.clear();
        }
        self.0.insert(key.clone(), value.clone());
    }

    pub(super) fn remove(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// Row of a key, from the cache or read and then cached.
    pub(super) fn get_or_read(&mut self, key: &K, read: impl FnOnce() -> Result<Option<V>>) -> Result<Option<V>> {
        if let Some(row) = self.0.get(key) {
            return Ok(Some(row.clone()));
        }
        let row = read()?;
        if let Some(row) = &row {
            self.insert(key, row);
        }
        Ok(row)
    }
}
