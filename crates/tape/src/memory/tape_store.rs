//! Tape store in memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use capstan_protocol::{EntryId, TapeName};

use crate::{Entry, StoreError, TapeSlice, TapeStore};

/// Tape store in memory.
#[derive(Debug, Default)]
pub struct MemoryTapeStore {
    tapes: Mutex<BTreeMap<TapeName, BTreeMap<EntryId, Entry>>>,
}

impl MemoryTapeStore {
    /// Empty tape store.
    pub fn new() -> Self {
        Self::default()
    }

    fn tapes(&self) -> MutexGuard<'_, BTreeMap<TapeName, BTreeMap<EntryId, Entry>>> {
        // Entries are inserted as a whole, so a panic cannot leave a partial change.
        self.tapes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl TapeStore for MemoryTapeStore {
    async fn append(&self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError> {
        let mut tapes = self.tapes();
        let stored = tapes.entry(tape.clone()).or_default();
        for entry in entries {
            stored.entry(entry.id).or_insert_with(|| entry.clone());
        }
        Ok(())
    }

    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        Ok(self.tapes().get(tape).map(|entries| slice.select(entries.values())).unwrap_or_default())
    }

    async fn tapes(&self) -> Result<Vec<TapeName>, StoreError> {
        Ok(self.tapes().keys().cloned().collect())
    }
}
