//! The one thread that writes, with group commit.
//!
//! It takes every batch that waits into one transaction, each behind a savepoint of its own, and answers nobody before
//! `COMMIT`: many writers share one flush of the disk, and a batch that is refused is refused alone.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use capstan_protocol::Timestamp;
use capstan_tape::{Batch, Committed, StoreError, rules};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::error::store_error;
use super::fail_point;
use super::rows::SqlRows;

/// How many batches may wait. A writer that finds no room waits too.
const WAITING: usize = 1024;
/// How many batches share a transaction, so that none waits for long.
const GROUP: usize = 256;

type Answer = Result<Committed, StoreError>;

/// A batch that waits to be written, and who wants to know.
struct Job {
    batch: Batch,
    answer: oneshot::Sender<Answer>,
}

/// The thread that writes. It ends, with all that waits written, when this is dropped.
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, path: PathBuf) -> Result<Self, StoreError> {
        let (jobs, waiting) = mpsc::channel(WAITING);
        let what = format!("start the writer of {}", path.display());
        let thread = std::thread::Builder::new().name("capstan-sqlite".to_owned());
        let thread = thread.spawn(move || write_all(&connection, &path, waiting));
        Ok(Self { jobs: Some(jobs), thread: Some(thread.map_err(|error| StoreError::io(what, error))?) })
    }

    /// Writes a batch and returns when it is on disk.
    pub(super) async fn commit(&self, batch: Batch) -> Answer {
        let stopped = || StoreError::io("write to the database", "the thread that writes has stopped");
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(Job { batch, answer }).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The thread ends when nobody can send any more.
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes to the database panicked");
        }
    }
}

fn write_all(connection: &Connection, path: &Path, mut waiting: mpsc::Receiver<Job>) {
    let largest = fail_point::largest_group().unwrap_or(GROUP);
    while let Some(first) = waiting.blocking_recv() {
        let mut group = vec![first];
        while group.len() < largest
            && let Ok(job) = waiting.try_recv()
        {
            group.push(job);
        }
        write_group(connection, path, group);
    }
}

fn write_group(connection: &Connection, path: &Path, group: Vec<Job>) {
    let (batches, waiting): (Vec<_>, Vec<_>) = group.into_iter().map(|job| (job.batch, job.answer)).unzip();
    let point = fail_point::Point::of(&batches);
    let answers = match commit_group(connection, batches, path, &point) {
        Ok(answers) => {
            point.after();
            answers
        }
        Err(failed) => {
            // It may be over already: then there is nothing to roll back.
            if !connection.is_autocommit()
                && let Err(error) = execute(connection, path, "ROLLBACK")
            {
                tracing::error!(%error, "a failed transaction could not be rolled back");
            }
            vec![Err(failed); waiting.len()]
        }
    };
    for (waiting, answer) in waiting.into_iter().zip(answers) {
        // Whoever asked may have gone; what was written stays written.
        let _ = waiting.send(answer);
    }
}

/// Applies every batch in one transaction. An error means that nothing of the whole group was written.
fn commit_group(
    connection: &Connection,
    batches: Vec<Batch>,
    path: &Path,
    point: &fail_point::Point,
) -> Result<Vec<Answer>, StoreError> {
    execute(connection, path, "BEGIN IMMEDIATE")?;
    let mut answers = Vec::with_capacity(batches.len());
    for batch in batches {
        execute(connection, path, "SAVEPOINT batch")?;
        let answer = rules::apply(&mut SqlRows { connection, path }, batch, Timestamp::now());
        if let Err(error) = &answer {
            if connection.is_autocommit() {
                // SQLite gave up the whole transaction, as it does when the disk is full.
                return Err(error.clone());
            }
            execute(connection, path, "ROLLBACK TO batch")?;
        }
        execute(connection, path, "RELEASE batch")?;
        answers.push(answer);
    }
    point.before();
    execute(connection, path, "COMMIT")?;
    Ok(answers)
}

fn execute(connection: &Connection, path: &Path, sql: &str) -> Result<(), StoreError> {
    let executed = connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
    executed.map(drop).map_err(|error| store_error(path, &error))
}
