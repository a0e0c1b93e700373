//! What `capstan doctor --repair` does: only what is safe beside running processes, and only where nothing is damaged. It
//! says what it did, and what it left.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_protocol::Timestamp;
use capstan_store::SqliteStore;
use capstan_tape::{Batch, Fact, OutboxStatus, Slice, Store, StoreError, TapeRecord, Tapes};

use super::super::store;
use super::journal::{Journal, given_up, some};

/// What became of a repair.
#[derive(Default)]
pub(super) struct Repairs {
    pub(super) done: Vec<String>,
    /// What was to be done and was not, and why.
    pub(super) left: Vec<String>,
}

/// Whether the configuration says where tapes are kept, or it was only guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TapesAre {
    Configured,
    Guessed,
}

impl Repairs {
    /// Does what can be done. Nothing is written where something is damaged: whoever mends it wants it as it is.
    pub(super) async fn make(journal: &Journal<'_>, tapes_are: TapesAre, unfinished: &[PathBuf]) -> Self {
        let mut repairs = Self::default();
        let damage = match journal.damage().await {
            Ok(damage) => damage.map(str::to_owned),
            Err(error) => Some(error.to_string()),
        };
        if let Some(damage) = damage {
            repairs.left.push(format!("nothing was touched: {damage}"));
            return repairs;
        }
        repairs.remove_dead_files(journal);
        repairs.remove_backups(unfinished);
        let Some(store) = repairs.open(journal) else { return repairs };
        // Closing the runs of dead processes belongs here: the schema is the newest, and what that appends is handed
        // over below.
        if let Err(error) = repairs.note_given_up(&store).await {
            repairs.left.push(format!("the messages that were given up could not be noted: {error}"));
        }
        if let Some(elsewhere) = &journal.elsewhere
            && let Err(error) = repairs.hand_over(&Tapes::kept_by(store, Arc::clone(elsewhere)), tapes_are).await
        {
            repairs.left.push(format!("the tapes could not be read: {error}"));
        }
        repairs
    }

    fn remove_dead_files(&mut self, journal: &Journal<'_>) {
        match journal.owners.remove_dead_files() {
            Ok(0) => {}
            Ok(removed) => self.done.push(format!("removed the files of processes that are gone: {removed}")),
            Err(error) => self.left.push(format!("the files of processes that are gone stay: {error}")),
        }
    }

    /// Removes what backups left that were broken off.
    fn remove_backups(&mut self, unfinished: &[PathBuf]) {
        for path in unfinished {
            match store::remove_backup(path) {
                Ok(()) => self.done.push(format!("removed a backup that was broken off: {}", path.display())),
                Err(error) => self.left.push(format!("{} stays: {error}", path.display())),
            }
        }
    }

    /// Opens the database, where there is one, which brings it to the newest version.
    fn open(&mut self, journal: &Journal<'_>) -> Option<Arc<SqliteStore>> {
        let version = SqliteStore::version_of(journal.database).ok()??;
        match SqliteStore::open(journal.database) {
            Ok(store) => {
                let newest = SqliteStore::SCHEMA_VERSION;
                if version < newest {
                    self.done.push(format!("brought the database from schema {version} to {newest}"));
                }
                Some(Arc::new(store))
            }
            Err(error) => {
                self.left.push(format!("the database could not be opened: {error}"));
                None
            }
        }
    }

    /// Takes note of messages that were given up, so that they are told of once. What they say stays where it is.
    async fn note_given_up(&mut self, store: &SqliteStore) -> Result<(), StoreError> {
        let dead = store.dead_letters(usize::MAX).await?.newest;
        if dead.is_empty() {
            return Ok(());
        }
        let now = Timestamp::now();
        let lines = some(dead.iter().map(|row| format!("  {}", given_up(row, now))));
        let mut batch = Batch::new();
        for row in &dead {
            if let OutboxStatus::Undelivered { reason } = &row.status {
                let status = OutboxStatus::Noted { reason: reason.clone() };
                batch.push(Fact::Delivery { id: row.id, status });
            }
        }
        store.commit(batch).await?;
        self.done.push(format!("noted messages that were given up, whose texts stay on their tapes: {}", dead.len()));
        self.done.extend(lines);
        Ok(())
    }

    /// Gives the tape store the entries that wait for it.
    async fn hand_over(&mut self, tapes: &Tapes, tapes_are: TapesAre) -> Result<(), StoreError> {
        for TapeRecord { name, .. } in tapes.store().tapes().await? {
            let waiting = tapes.store().read(&name, &Slice::all()).await?.len();
            if waiting == 0 {
                continue;
            }
            if tapes_are == TapesAre::Guessed {
                self.left.push(format!("entries of tape {name} wait until the configuration says where it is kept"));
                continue;
            }
            match tapes.hand_over(&name).await {
                Ok(()) => self.done.push(format!("handed over entries of tape {name}: {waiting}")),
                Err(error) => self.left.push(format!("entries of tape {name} still wait: {error}")),
            }
        }
        Ok(())
    }
}
