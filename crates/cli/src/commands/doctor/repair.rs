//! What `capstan doctor --repair` does: only what is safe beside running processes, and only where nothing is damaged. It
//! says what it did, and what it left.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_protocol::Timestamp;
use capstan_store::SqliteStore;
use capstan_tape::{Batch, Fact, OutboxStatus, Store, StoreError, TapeRecord, TapeRepository, TapeSlice};

use super::super::store;
use super::store_check::{StoreCheck, format_dead_letter, truncate_lines};

/// What became of a repair.
#[derive(Default)]
pub(super) struct RepairOutcome {
    pub(super) done: Vec<String>,
    /// What was to be done and was not, and why.
    pub(super) unrepaired: Vec<String>,
}

/// Whether the configuration says where tapes are kept, or it was only guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TapeStoreOrigin {
    Configured,
    Inferred,
}

impl RepairOutcome {
    /// Does what can be done. Nothing is written where something is damaged: whoever mends it wants it as it is.
    pub(super) async fn run(journal: &StoreCheck<'_>, tapes_are: TapeStoreOrigin, unfinished: &[PathBuf]) -> Self {
        let mut repairs = Self::default();
        let damage = match journal.damage().await {
            Ok(damage) => damage.map(str::to_owned),
            Err(error) => Some(error.to_string()),
        };
        if let Some(damage) = damage {
            repairs.unrepaired.push(format!("nothing was touched: {damage}"));
            return repairs;
        }
        repairs.remove_dead_files(journal);
        repairs.remove_stale_backups(unfinished);
        let Some(store) = repairs.open_store(journal) else { return repairs };
        // Closing the runs of dead processes belongs here: the schema is the newest, and what that appends is handed
        // over below.
        if let Err(error) = repairs.acknowledge_dead_letters(&store).await {
            repairs.unrepaired.push(format!("the messages that were given up could not be noted: {error}"));
        }
        if let Some(elsewhere) = &journal.external_tapes
            && let Err(error) = repairs
                .replicate_tapes(&TapeRepository::with_external_store(store, Arc::clone(elsewhere)), tapes_are)
                .await
        {
            repairs.unrepaired.push(format!("the tapes could not be read: {error}"));
        }
        repairs
    }

    fn remove_dead_files(&mut self, journal: &StoreCheck<'_>) {
        match journal.owners.remove_stale_lock_files() {
            Ok(0) => {}
            Ok(removed) => self.done.push(format!("removed the files of processes that are gone: {removed}")),
            Err(error) => self.unrepaired.push(format!("the files of processes that are gone stay: {error}")),
        }
    }

    /// Removes what backups left that were broken off.
    fn remove_stale_backups(&mut self, unfinished: &[PathBuf]) {
        for path in unfinished {
            match store::remove_unfinished_backup(path) {
                Ok(()) => self.done.push(format!("removed a backup that was broken off: {}", path.display())),
                Err(error) => self.unrepaired.push(format!("{} stays: {error}", path.display())),
            }
        }
    }

    /// Opens the database, where there is one, which brings it to the newest version.
    fn open_store(&mut self, journal: &StoreCheck<'_>) -> Option<Arc<SqliteStore>> {
        let version = SqliteStore::read_schema_version(journal.database).ok()??;
        match SqliteStore::open(journal.database) {
            Ok(store) => {
                let newest = SqliteStore::SCHEMA_VERSION;
                if version < newest {
                    self.done.push(format!("brought the database from schema {version} to {newest}"));
                }
                Some(Arc::new(store))
            }
            Err(error) => {
                self.unrepaired.push(format!("the database could not be opened: {error}"));
                None
            }
        }
    }

    /// Takes note of messages that were given up, so that they are told of once. What they say stays where it is.
    async fn acknowledge_dead_letters(&mut self, store: &SqliteStore) -> Result<(), StoreError> {
        let dead = store.dead_letters(usize::MAX).await?.newest;
        if dead.is_empty() {
            return Ok(());
        }
        let now = Timestamp::now();
        let lines = truncate_lines(dead.iter().map(|row| format!("  {}", format_dead_letter(row, now))));
        let mut batch = Batch::new();
        for row in &dead {
            if let OutboxStatus::Undelivered { reason } = &row.status {
                let status = OutboxStatus::Noted { reason: reason.clone() };
                batch.push(Fact::RecordDelivery { id: row.id, status });
            }
        }
        store.commit(batch).await?;
        self.done.push(format!("noted messages that were given up, whose texts stay on their tapes: {}", dead.len()));
        self.done.extend(lines);
        Ok(())
    }

    /// Gives the tape store the entries that wait for it.
    async fn replicate_tapes(&mut self, tapes: &TapeRepository, tapes_are: TapeStoreOrigin) -> Result<(), StoreError> {
        for TapeRecord { name, .. } in tapes.store().tapes().await? {
            let waiting = tapes.store().read(&name, &TapeSlice::all()).await?.len();
            if waiting == 0 {
                continue;
            }
            if tapes_are == TapeStoreOrigin::Inferred {
                self.unrepaired
                    .push(format!("entries of tape {name} wait until the configuration says where it is kept"));
                continue;
            }
            match tapes.replicate(&name).await {
                Ok(()) => self.done.push(format!("handed over entries of tape {name}: {waiting}")),
                Err(error) => self.unrepaired.push(format!("entries of tape {name} still wait: {error}")),
            }
        }
        Ok(())
    }
}
