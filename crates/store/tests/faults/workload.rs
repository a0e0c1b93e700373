//! What a process writes until its power goes: batches of several tasks at once, each told of when its commit returned.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use capstan_protocol::{BlobHash, EntryId, TapeName};
use capstan_store::{SqliteOptions, SqliteStore};
use capstan_tape::{Batch, EntryRef, Fact, JournalStore as _, NewTape, StoreError, blob_hash};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{name, user};

/// How many tasks write at once.
pub const WRITER_TASKS: usize = 8;
/// How much of a task's state is written with each batch. Pages that are written again and again fill the log, which is
/// copied back into the database when it is so long, while the database itself stays small.
const STATE_BYTES: usize = 20_000;
const WORKLOAD_CHECKPOINT_PAGES: u32 = 1000;

/// One batch: which task's, and which of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkloadBatch {
    pub task: usize,
    pub number: usize,
}

/// The tape that all tasks write to.
pub fn shared_tape() -> TapeName {
    name("shared")
}

/// The tape of a task.
pub fn task_tape(task: usize) -> TapeName {
    name(&format!("task-{task}"))
}

impl WorkloadBatch {
    /// What its entries on the shared tape say, in order.
    pub fn texts(self) -> [String; 2] {
        ["begins", "ends"].map(|part| format!("{}.{} {part}", self.task, self.number))
    }

    pub fn blob(self) -> (BlobHash, Vec<u8>) {
        let bytes = format!("content of {}.{}", self.task, self.number).into_bytes();
        (blob_hash(&bytes), bytes)
    }

    pub fn state(self) -> Value {
        json!({ "number": self.number, "filler": self.number.to_string().repeat(STATE_BYTES)[..STATE_BYTES] })
    }

    fn to_batch(self) -> (Batch, EntryRef) {
        let (shared, own) = (shared_tape(), task_tape(self.task));
        let [begins, ends] = self.texts();
        let (hash, bytes) = self.blob();
        let mut batch = Batch::new();
        batch.push(Fact::EnsureTape(NewTape::with_name(shared.clone())));
        batch.push(Fact::EnsureTape(NewTape::with_name(own.clone())));
        let first = batch.append(&shared, user(&begins));
        batch.append(&own, user(&self.number.to_string()));
        batch.push(Fact::PutBlob { hash, bytes: bytes.into() });
        batch.push(Fact::PutState { tape: own, key: "latest".into(), value: self.state() });
        batch.append(&shared, user(&ends));
        (batch, first)
    }

    /// Commits it, and tells of it when it is done.
    pub async fn commit_and_report(self, store: &SqliteStore) -> Result<(), StoreError> {
        let (batch, first) = self.to_batch();
        let id = store.commit(batch).await?.entry_id(first).unwrap();
        // In one piece: it is told, or it is not.
        let told = format!("\nack {} {} {}\n", self.task, self.number, id.0);
        std::io::stdout().lock().write_all(told.as_bytes()).unwrap();
        Ok(())
    }
}

/// Writes batches of these numbers from every task at once.
pub async fn run_workload(database: &Path, numbers: std::ops::Range<usize>) {
    let options = SqliteOptions { wal_checkpoint_pages: WORKLOAD_CHECKPOINT_PAGES, ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open_with(database, options).unwrap());
    let mut tasks = JoinSet::new();
    for task in 0..WRITER_TASKS {
        let (store, numbers) = (Arc::clone(&store), numbers.clone());
        tasks.spawn(async move {
            for number in numbers {
                WorkloadBatch { task, number }.commit_and_report(&store).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}

/// The batches that were told of in what a process said, and the id of the first entry of each on the shared tape.
pub fn parse_acknowledged(said: &str) -> Vec<(WorkloadBatch, EntryId)> {
    let ack = |line: &str| {
        let mut numbers = line.strip_prefix("ack ")?.split(' ').map(|word| word.parse::<usize>().unwrap());
        let mut next = || numbers.next().unwrap();
        let written = WorkloadBatch { task: next(), number: next() };
        Some((written, EntryId(next() as u64)))
    };
    said.lines().filter_map(ack).collect()
}
