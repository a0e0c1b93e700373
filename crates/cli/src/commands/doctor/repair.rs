//! What `capstan doctor --repair` does: only what is safe beside running processes, and it says what it did.

use std::path::Path;
use std::sync::Arc;

use capstan_host::Owners;
use capstan_store::SqliteStore;
use capstan_tape::{Slice, Store, StoreError, TapeRecord, TapeStore, Tapes};

/// What became of a repair.
#[derive(Default)]
pub(super) struct Repairs {
    pub(super) done: Vec<String>,
    pub(super) failed: Vec<String>,
}

impl Repairs {
    /// Does what can be done. What is damaged is left as it is: the checks tell of it.
    pub(super) async fn make(database: &Path, elsewhere: Option<&Arc<dyn TapeStore>>, owners: &Owners) -> Self {
        let mut repairs = Self::default();
        repairs.remove_dead_files(owners);
        let Some(store) = repairs.migrate(database) else { return repairs };
        // Closing the runs of dead processes belongs here: the schema is the newest, and what that appends is handed
        // over below.
        if let Some(elsewhere) = elsewhere
            && let Err(error) = repairs.hand_over(&Tapes::kept_by(store, Arc::clone(elsewhere))).await
        {
            repairs.failed.push(format!("the tapes could not be read: {error}"));
        }
        repairs
    }

    fn remove_dead_files(&mut self, owners: &Owners) {
        match owners.remove_dead_files() {
            Ok(0) => {}
            Ok(removed) => self.done.push(format!("removed the files of processes that are gone: {removed}")),
            Err(error) => self.failed.push(format!("the files of processes that are gone stay: {error}")),
        }
    }

    /// Brings the database to the newest version, where there is one that can be read.
    fn migrate(&mut self, database: &Path) -> Option<Arc<dyn Store>> {
        let version = SqliteStore::version_of(database).ok()??;
        match SqliteStore::open(database) {
            Ok(store) => {
                let newest = SqliteStore::SCHEMA_VERSION;
                if version < newest {
                    self.done.push(format!("brought the database from schema {version} to {newest}"));
                }
                Some(Arc::new(store))
            }
            Err(error) => {
                self.failed.push(format!("the database could not be opened: {error}"));
                None
            }
        }
    }

    /// Gives the tape store the entries that wait for it.
    async fn hand_over(&mut self, tapes: &Tapes) -> Result<(), StoreError> {
        for TapeRecord { name, .. } in tapes.store().tapes().await? {
            let waiting = tapes.store().read(&name, &Slice::all()).await?.len();
            if waiting == 0 {
                continue;
            }
            match tapes.hand_over(&name).await {
                Ok(()) => self.done.push(format!("handed over entries of tape {name}: {waiting}")),
                Err(error) => self.failed.push(format!("entries of tape {name} still wait: {error}")),
            }
        }
        Ok(())
    }
}
