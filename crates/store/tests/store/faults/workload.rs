//! Workload of the power tests: batches of several concurrent tasks, each acknowledged on stdout after its commit.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use capstan_protocol::{BlobHash, EntryId, TapeName};
use capstan_store::{SqliteOptions, SqliteStore};
use capstan_tape::{Batch, EntryRef, Fact, JournalStore as _, NewTape, StoreError, blob_hash};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{name, user};

/// Number of concurrent tasks.
pub const WRITER_TASKS: usize = 8;
/// Size of the state that a task writes with each batch. Pages that are written repeatedly fill the log until it is
/// checkpointed, while the database stays small.
const STATE_BYTES: usize = 20_000;
const WORKLOAD_CHECKPOINT_PAGES: u32 = 1000;

/// Batch of a task, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkloadBatch {
    pub task: usize,
    pub number: usize,
}

/// Tape that all tasks write to.
pub fn shared_tape() -> TapeName {
    name("shared")
}

/// Tape of a task.
pub fn task_tape(task: usize) -> TapeName {
    name(&format!("task-{task}"))
}

impl WorkloadBatch {
    /// Texts of its entries on the shared tape, in order.
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
        batch.push(Fact::EnsureTape(NewTape::without_session(shared.clone())));
        batch.push(Fact::EnsureTape(NewTape::without_session(own.clone())));
        let first = batch.append(&shared, user(&begins));
        batch.append(&own, user(&self.number.to_string()));
        batch.push(Fact::PutBlob { hash, bytes: bytes.into() });
        batch.push(Fact::PutState { tape: own, key: "latest".into(), value: self.state() });
        batch.append(&shared, user(&ends));
        (batch, first)
    }

    /// Commits the batch and acknowledges it on stdout.
    pub async fn commit_and_report(self, store: &SqliteStore) -> Result<(), StoreError> {
        let (batch, first) = self.to_batch();
        let id = store.commit(batch).await?.entry_id(first).unwrap();
        // One write call, so that an acknowledgement is recorded completely or not at all.
        let acknowledgement = format!("\nack {} {} {}\n", self.task, self.number, id.0);
        std::io::stdout().lock().write_all(acknowledgement.as_bytes()).unwrap();
        Ok(())
    }
}

/// Writes the batches with these numbers from all tasks concurrently.
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

/// Acknowledged batches in the output of a process, each with the id of its first entry on the shared tape.
pub fn parse_acknowledged(stdout: &str) -> Vec<(WorkloadBatch, EntryId)> {
    let parse_line = |line: &str| {
        let mut numbers = line.strip_prefix("ack ")?.split(' ').map(|word| word.parse::<usize>().unwrap());
        let mut next = || numbers.next().unwrap();
        let batch = WorkloadBatch { task: next(), number: next() };
        Some((batch, EntryId(next() as u64)))
    };
    stdout.lines().filter_map(parse_line).collect()
}
