//! Stores the entries of tapes elsewhere: in memory in this example, for instance in another database in yours.
//!
//! The host commits to its own store first and replicates the entries right after. Views, searches and `capstan tape`
//! read them from here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use capstan::hooks::points::ProvideTapeStore;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use capstan::protocol::{EntryId, TapeName};
use capstan::tape::{Entry, StoreError, TapeSlice, TapeStore};

/// Entries by tape and id. Clones share them.
#[derive(Clone, Default)]
pub struct ExampleTapeStore {
    tapes: Arc<Mutex<BTreeMap<TapeName, BTreeMap<EntryId, Entry>>>>,
}

impl ExampleTapeStore {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TapeName, BTreeMap<EntryId, Entry>>> {
        self.tapes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plugin for ExampleTapeStore {
    fn name(&self) -> &'static str {
        "memory-tapes"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let store = self.clone();
        hooks.on_sync(ProvideTapeStore, move || Ok(Some(Arc::new(store.clone()) as Arc<dyn TapeStore>)));
        Ok(())
    }
}

#[async_trait]
impl TapeStore for ExampleTapeStore {
    async fn append(&self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError> {
        let mut tapes = self.lock();
        let stored = tapes.entry(tape.clone()).or_default();
        for entry in entries {
            // After a crash the same entry may be replicated again; the first copy stays.
            stored.entry(entry.id).or_insert_with(|| entry.clone());
        }
        Ok(())
    }

    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        Ok(self.lock().get(tape).map(|stored| slice.select(stored.values())).unwrap_or_default())
    }

    async fn tapes(&self) -> Result<Vec<TapeName>, StoreError> {
        Ok(self.lock().keys().cloned().collect())
    }
}
