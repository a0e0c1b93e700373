//! Invariants of a database after a power cut.

use std::collections::BTreeSet;
use std::path::Path;

use capstan_protocol::EntryId;
use capstan_store::SqliteStore;
use capstan_tape::{JournalStore as _, KeyValueStore as _};
use rusqlite::Connection;

use super::workload::{WRITER_TASKS, WorkloadBatch, shared_tape, task_tape};
use crate::support::{all, ids, messages, texts};

/// Batches that survived in a database.
pub struct DatabaseSurvivors {
    /// Batches in the order of each task.
    pub batches: Vec<WorkloadBatch>,
    /// Texts of the entries of the shared tape.
    shared_texts: Vec<String>,
}

impl DatabaseSurvivors {
    /// Opens the database and asserts that every batch survived completely or not at all, that ids have no gaps, and
    /// that the store has no integrity problem and can be written.
    pub async fn open_and_check(database: &Path) -> Self {
        let store = SqliteStore::open(database).expect("the database opens without repair");
        let entries = all(&store, &shared_tape()).await;
        let next = entries.len() as u64 + 1;
        assert_eq!(ids(&entries), (1..next).collect::<Vec<u64>>(), "no gap");
        let mut survivors = Self { batches: Vec::new(), shared_texts: texts(&entries) };
        for task in 0..WRITER_TASKS {
            survivors.check_task(&store, task).await;
        }
        let batches = &survivors.batches;
        assert_eq!(
            survivors.shared_texts.len(),
            2 * batches.len(),
            "every entry of the shared tape belongs to a batch"
        );
        let hashes: BTreeSet<String> = batches.iter().map(|batch| batch.blob().0.to_string()).collect();
        assert_eq!(read_blob_hashes(database), hashes);
        assert_eq!(store.verify().await.unwrap(), []);
        let committed =
            store.commit(messages(&shared_tape(), &["one more"])).await.expect("the database can be written");
        assert_eq!(committed.entry_id(capstan_tape::EntryRef::InBatch(1)), Some(EntryId(next)));
        survivors
    }

    async fn check_task(&mut self, store: &SqliteStore, task: usize) {
        let entries = all(store, &task_tape(task)).await;
        assert_eq!(ids(&entries), (1..=entries.len() as u64).collect::<Vec<u64>>(), "no gap");
        let numbers: Vec<String> = (0..entries.len()).map(|number| number.to_string()).collect();
        assert_eq!(texts(&entries), numbers, "no batch is missing before a surviving one");
        let batches = (0..entries.len()).map(|number| WorkloadBatch { task, number });
        let state = batches.clone().next_back().map(WorkloadBatch::state);
        assert_eq!(store.state(&task_tape(task)).await.unwrap().get("latest"), state.as_ref());
        for batch in batches {
            let texts = batch.texts();
            assert!(self.shared_texts.windows(2).any(|pair| pair == texts), "{batch:?} survived partly");
            self.batches.push(batch);
        }
    }

    /// Returns true if the entries of a batch are at the acknowledged position.
    pub fn contains_batch(&self, batch: WorkloadBatch, first: EntryId) -> bool {
        let position = usize::try_from(first.0).unwrap() - 1;
        self.shared_texts.get(position..position + 2).is_some_and(|texts| texts == batch.texts())
    }
}

/// Hashes of all blobs. The integrity check compares them with the content.
fn read_blob_hashes(database: &Path) -> BTreeSet<String> {
    let connection = Connection::open(database).unwrap();
    let mut statement = connection.prepare("SELECT hash FROM blobs").unwrap();
    let hashes = statement.query_map([], |row| row.get(0)).unwrap();
    hashes.collect::<Result<_, _>>().unwrap()
}
