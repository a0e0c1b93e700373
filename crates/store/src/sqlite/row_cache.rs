//! Rows that the writer wrote or read before, so that it need not read them again.

use std::collections::HashMap;
use std::hash::Hash;

use capstan_protocol::{BlobHash, EventKey, RunId, TapeName};
use capstan_tape::{InFlightEvent, LeaseRecord, RunRecord, TapeRecord};
use foldhash::fast::RandomState;
use rusqlite::{Connection, Result};

/// How many rows of a table are remembered.
const MAX_CACHED_ROWS: usize = 4096;

/// Rows as the writer's own connection would read them in its present transaction.
///
/// That holds while nobody else writes to the file and nothing is taken back: [`Known::heed`] forgets all when another
/// connection has committed, and whoever rolls back calls [`Known::forget`].
#[derive(Default)]
pub(super) struct RowCache {
    /// What `SQLite` counts the commits of others by.
    data_version: i64,
    pub(super) tapes: TableCache<TapeName, TapeRecord>,
    pub(super) leases: TableCache<TapeName, LeaseRecord>,
    /// Only those that have not ended.
    pub(super) in_flight: TableCache<EventKey, InFlightEvent>,
    /// Only those that have not ended.
    pub(super) runs: TableCache<RunId, RunRecord>,
    /// Contents that are there: a conversation brings the same ones with every call.
    pub(super) blobs: TableCache<BlobHash, ()>,
}

impl RowCache {
    /// Forgets everything if another connection has committed. To be called when a transaction that writes has begun:
    /// from then on nobody else can.
    pub(super) fn invalidate_if_changed(&mut self, connection: &Connection) -> Result<()> {
        let mut statement = connection.prepare_cached("PRAGMA data_version")?;
        let version = statement.query_row([], |row| row.get(0))?;
        if version != self.data_version {
            self.clear();
            self.data_version = version;
        }
        Ok(())
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        let version = self.data_version;
        *self = Self { data_version: version, ..Self::default() };
    }
}

/// Rows of one table. When there are too many all are forgotten, which costs a read each.
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

    /// The row of a key: remembered, or read and remembered.
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
