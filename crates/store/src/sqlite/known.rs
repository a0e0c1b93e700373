//! Rows that the writer wrote or read before, so that it need not read them again.

use std::collections::HashMap;
use std::hash::Hash;

use capstan_protocol::{BlobHash, EventKey, RunId, TapeName};
use capstan_tape::{InFlight, LeaseRecord, RunRecord, TapeRecord};
use foldhash::fast::RandomState;
use rusqlite::{Connection, Result};

/// How many rows of a table are remembered.
const REMEMBERED: usize = 4096;

/// Rows as the writer's own connection would read them in its present transaction.
///
/// That holds while nobody else writes to the file and nothing is taken back: [`Known::heed`] forgets all when another
/// connection has committed, and whoever rolls back calls [`Known::forget`].
#[derive(Default)]
pub(super) struct Known {
    /// What `SQLite` counts the commits of others by.
    version: i64,
    pub(super) tapes: Remembered<TapeName, TapeRecord>,
    pub(super) leases: Remembered<TapeName, LeaseRecord>,
    /// Only those that have not ended.
    pub(super) in_flight: Remembered<EventKey, InFlight>,
    /// Only those that have not ended.
    pub(super) runs: Remembered<RunId, RunRecord>,
    /// Contents that are there: a conversation brings the same ones with every call.
    pub(super) blobs: Remembered<BlobHash, ()>,
}

impl Known {
    /// Forgets everything if another connection has committed. To be called when a transaction that writes has begun:
    /// from then on nobody else can.
    pub(super) fn heed(&mut self, connection: &Connection) -> Result<()> {
        let mut statement = connection.prepare_cached("PRAGMA data_version")?;
        let version = statement.query_row([], |row| row.get(0))?;
        if version != self.version {
            self.forget();
            self.version = version;
        }
        Ok(())
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        let version = self.version;
        *self = Self { version, ..Self::default() };
    }
}

/// Rows of one table. When there are too many all are forgotten, which costs a read each.
pub(super) struct Remembered<K, V>(HashMap<K, V, RandomState>);

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Remembered<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub(super) fn put(&mut self, key: &K, value: &V) {
        if let Some(row) = self.0.get_mut(key) {
            row.clone_from(value);
            return;
        }
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(key.clone(), value.clone());
    }

    pub(super) fn remove(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// The row of a key: remembered, or read and remembered.
    pub(super) fn or_read(&mut self, key: &K, read: impl FnOnce() -> Result<Option<V>>) -> Result<Option<V>> {
        if let Some(row) = self.0.get(key) {
            return Ok(Some(row.clone()));
        }
        let row = read()?;
        if let Some(row) = &row {
            self.put(key, row);
        }
        Ok(row)
    }
}
