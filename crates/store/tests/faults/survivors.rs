//! What must hold for a database that a power cut left.

use std::collections::BTreeSet;
use std::path::Path;

use capstan_protocol::EntryId;
use capstan_store::SqliteStore;
use capstan_tape::{JournalStore as _, KeyValueStore as _};
use rusqlite::Connection;

use crate::support::{all, ids, messages, texts};
use crate::workload::{WRITER_TASKS, WorkloadBatch, shared_tape, task_tape};

/// What is in a database that a power cut left.
pub struct DatabaseSurvivors {
    /// The batches, each task's in its order.
    pub batches: Vec<WorkloadBatch>,
    /// What the entries of the shared tape say.
    shared_texts: Vec<String>,
}

impl DatabaseSurvivors {
    /// Opens the database and asserts that every batch is there whole or not at all, that ids go on without a gap, and
    /// that the store finds nothing wrong and can be written to.
    pub async fn open_and_check(database: &Path) -> Self {
        let store = SqliteStore::open(database).expect("it opens without help");
        let entries = all(&store, &shared_tape()).await;
        let next = entries.len() as u64 + 1;
        assert_eq!(ids(&entries), (1..next).collect::<Vec<u64>>(), "no gap");
        let mut survivors = Self { batches: Vec::new(), shared_texts: texts(&entries) };
        for task in 0..WRITER_TASKS {
            survivors.check_task(&store, task).await;
        }
        let batches = &survivors.batches;
        assert_eq!(survivors.shared_texts.len(), 2 * batches.len(), "nothing on the shared tape belongs to no batch");
        let hashes: BTreeSet<String> = batches.iter().map(|written| written.blob().0.to_string()).collect();
        assert_eq!(read_blob_hashes(database), hashes);
        assert_eq!(store.verify().await.unwrap(), []);
        let committed = store.commit(messages(&shared_tape(), &["one more"])).await.expect("it goes on");
        assert_eq!(committed.entry_id(capstan_tape::EntryRef::InBatch(1)), Some(EntryId(next)));
        survivors
    }

    async fn check_task(&mut self, store: &SqliteStore, task: usize) {
        let entries = all(store, &task_tape(task)).await;
        assert_eq!(ids(&entries), (1..=entries.len() as u64).collect::<Vec<u64>>(), "no gap");
        let numbers: Vec<String> = (0..entries.len()).map(|number| number.to_string()).collect();
        assert_eq!(texts(&entries), numbers, "none is missing before one that is there");
        let batches = (0..entries.len()).map(|number| WorkloadBatch { task, number });
        let state = batches.clone().next_back().map(WorkloadBatch::state);
        assert_eq!(store.state(&task_tape(task)).await.unwrap().get("latest"), state.as_ref());
        for written in batches {
            let texts = written.texts();
            assert!(self.shared_texts.windows(2).any(|pair| pair == texts), "{written:?} is there half");
            self.batches.push(written);
        }
    }

    /// Whether a batch stands where it was told to stand.
    pub fn contains_batch(&self, written: WorkloadBatch, first: EntryId) -> bool {
        let position = usize::try_from(first.0).unwrap() - 1;
        self.shared_texts.get(position..position + 2).is_some_and(|texts| texts == written.texts())
    }
}

/// The hashes of all blobs. That each is what its hash says is for the store to verify.
fn read_blob_hashes(database: &Path) -> BTreeSet<String> {
    let connection = Connection::open(database).unwrap();
    let mut statement = connection.prepare("SELECT hash FROM blobs").unwrap();
    let hashes = statement.query_map([], |row| row.get(0)).unwrap();
    hashes.collect::<Result<_, _>>().unwrap()
}
