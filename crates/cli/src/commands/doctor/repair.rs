//! `capstan doctor --repair`: repairs that are safe while other processes run, and only if the store is not damaged.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_protocol::Timestamp;
use capstan_store::{HighWaterMark, SqliteStore};
use capstan_tape::{Batch, Fact, JournalStore as _, OutboxStatus, StoreError, TapeRecord, TapeRepository, TapeSlice};

use super::super::store;
use super::store_check::{StoreCheck, format_dead_letter, truncate_lines};
use crate::config::find_abandoned_files;

/// Completed and failed repairs.
#[derive(Default)]
pub(super) struct RepairOutcome {
    pub(super) done: Vec<String>,
    /// Failed repairs with their reasons.
    pub(super) unrepaired: Vec<String>,
}

/// Source of the location of the tape store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TapeStoreOrigin {
    /// Set by the configuration.
    Configured,
    /// Guessed from the files of the home.
    Inferred,
}

impl RepairOutcome {
    /// Runs all repairs. A damaged store is not written to, so that it can be restored by hand.
    ///
    /// `has_changes` is true if this command has changed the home before.
    pub(super) async fn run(
        store_check: &StoreCheck<'_>,
        tape_store: TapeStoreOrigin,
        unfinished: &[PathBuf],
        has_changes: bool,
    ) -> Self {
        let mut repairs = Self::default();
        let damage = match store_check.damage().await {
            Ok(damage) => damage.map(str::to_owned),
            Err(error) => Some(error.to_string()),
        };
        if let Some(damage) = damage {
            let nothing = if has_changes { "nothing else" } else { "nothing" };
            repairs.unrepaired.push(format!("{nothing} was changed: {damage}"));
            return repairs;
        }
        repairs.remove_stale_locks(store_check);
        repairs.remove_abandoned_files(store_check);
        repairs.remove_stale_backups(unfinished);
        repairs.acknowledge_lost_database(store_check);
        let Some(store) = repairs.open_store(store_check) else { return repairs };
        repairs.acknowledge_setback(store_check);
        // A repair that closes runs of dead processes would belong here: after the migration of the schema, and before the
        // replication of the entries it would append.
        if let Err(error) = repairs.acknowledge_dead_letters(&store).await {
            repairs.unrepaired.push(format!("could not acknowledge dead letters: {error}"));
        }
        if let Some(external) = &store_check.external_tapes
            && let Err(error) = repairs
                .replicate_tapes(&TapeRepository::with_external_store(store, Arc::clone(external)), tape_store)
                .await
        {
            repairs.unrepaired.push(format!("could not read the tapes: {error}"));
        }
        repairs
    }

    fn remove_stale_locks(&mut self, store_check: &StoreCheck<'_>) {
        match store_check.owners.remove_stale_lock_files() {
            Ok(0) => {}
            Ok(removed) => self.done.push(format!("removed stale lock files: {removed}")),
            Err(error) => self.unrepaired.push(format!("could not remove stale lock files: {error}")),
        }
    }

    /// Removes what a killed `capstan onboard` left, which may hold a key.
    fn remove_abandoned_files(&mut self, store_check: &StoreCheck<'_>) {
        for path in store_check.database.parent().map(find_abandoned_files).unwrap_or_default() {
            match std::fs::remove_file(&path) {
                Ok(()) => self.done.push(format!("removed an abandoned file: {}", path.display())),
                Err(error) => self.unrepaired.push(format!("could not remove {}: {error}", path.display())),
            }
        }
    }

    fn remove_stale_backups(&mut self, unfinished: &[PathBuf]) {
        for path in unfinished {
            match store::remove_unfinished_backup(path) {
                Ok(()) => self.done.push(format!("removed an interrupted backup: {}", path.display())),
                Err(error) => self.unrepaired.push(format!("could not remove {}: {error}", path.display())),
            }
        }
    }

    /// Opens the database, if there is one, which migrates it to the newest schema.
    fn open_store(&mut self, store_check: &StoreCheck<'_>) -> Option<Arc<SqliteStore>> {
        let version = SqliteStore::read_schema_version(store_check.database).ok()??;
        match SqliteStore::open(store_check.database) {
            Ok(store) => {
                let newest = SqliteStore::SCHEMA_VERSION;
                if version < newest {
                    self.done.push(format!("migrated the database from schema {version} to {newest}"));
                }
                Some(Arc::new(store))
            }
            Err(error) => {
                self.unrepaired.push(format!("could not open the database: {error}"));
                None
            }
        }
    }

    /// Acknowledges that the database is gone or empty, so that the next start begins with an empty one.
    fn acknowledge_lost_database(&mut self, store_check: &StoreCheck<'_>) {
        match HighWaterMark::acknowledge_lost_entries(store_check.database) {
            Ok(None) => {}
            Ok(Some(entries)) => {
                self.done.push(format!("acknowledged that the database is gone, with its {entries} entries"));
            }
            Err(error) => self.unrepaired.push(format!("could not acknowledge a missing database: {error}")),
        }
    }

    /// Acknowledges that the database went back to an earlier state.
    fn acknowledge_setback(&mut self, store_check: &StoreCheck<'_>) {
        let setback = HighWaterMark::read(store_check.database).ok().flatten().and_then(|mark| mark.setback);
        let Some(setback) = setback else { return };
        match HighWaterMark::acknowledge_setback(store_check.database) {
            Ok(()) => self.done.push(format!("acknowledged that {} entries are gone", setback.entries)),
            Err(error) => self.unrepaired.push(format!("could not acknowledge missing entries: {error}")),
        }
    }

    /// Marks dead letters as acknowledged, so that they are reported once. Their texts stay on their tapes.
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
                let status = OutboxStatus::Acknowledged { reason: reason.clone() };
                batch.push(Fact::RecordDelivery { id: row.id, status });
            }
        }
        store.commit(batch).await?;
        self.done.push(format!("acknowledged dead letters, whose texts stay on their tapes: {}", dead.len()));
        self.done.extend(lines);
        Ok(())
    }

    /// Replicates pending entries to the external tape store.
    async fn replicate_tapes(&mut self, tapes: &TapeRepository, tape_store: TapeStoreOrigin) -> Result<(), StoreError> {
        let mut records = tapes.store().tapes();
        while let Some(TapeRecord { name, .. }) = records.next().await? {
            let pending = tapes.store().read(&name, &TapeSlice::all()).await?.len();
            if pending == 0 {
                continue;
            }
            if tape_store == TapeStoreOrigin::Inferred {
                self.unrepaired.push(format!("cannot replicate tape {name} before the configuration is valid"));
                continue;
            }
            match tapes.replicate(&name).await {
                Ok(()) => self.done.push(format!("replicated entries of tape {name}: {pending}")),
                Err(error) => self.unrepaired.push(format!("could not replicate entries of tape {name}: {error}")),
            }
        }
        Ok(())
    }
}
