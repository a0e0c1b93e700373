//! The one thread that writes, with group commit.
//!
//! It takes every batch that waits into one transaction, and answers nobody before `COMMIT`, nor before the disk has it
//! where that was promised: many writers share one flush of the disk. A batch that is refused is refused alone: one that
//! had written something by then makes the group begin anew, each batch behind a savepoint of its own.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use capstan_protocol::Timestamp;
use capstan_tape::{Batch, CommitDurability, CommitReceipt, StoreError, rules};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::SqliteOptions;
use super::encoded_batch::EncodedBatch;
use super::error::store_error;
use super::fail_point;
use super::row_cache::RowCache;
use super::search::{self, IndexChunk};
use super::sql_rows::SqlRows;
use super::statement_cache::StatementCache;
use super::wal_sync::WalSyncer;

/// How many batches may wait. A writer that finds no room waits too.
const WRITE_QUEUE_CAPACITY: usize = 1024;
/// How many batches share a transaction, so that none waits for long.
const MAX_GROUP_BATCHES: usize = 256;

type CommitResult = Result<CommitReceipt, StoreError>;

/// Something that waits to be written, and who wants to know.
enum WriteJob {
    Batch(Box<PreparedBatch>, oneshot::Sender<CommitReply>),
    Index(IndexUpdate, oneshot::Sender<Result<(), StoreError>>),
}

/// A batch, and what of it is written down already.
struct PreparedBatch {
    batch: Batch,
    encoded: EncodedBatch,
}

/// An answer, and the batch that it is about: all sessions wait for the thread that writes, so whoever brought a batch drops
/// it.
struct CommitReply {
    result: CommitResult,
    prepared: Box<PreparedBatch>,
}

/// Something to be done to the search index, which no batch depends on.
pub(super) enum IndexUpdate {
    /// Entries are added.
    Add(IndexChunk),
    /// It is emptied.
    Clear,
}

/// The thread that writes. It ends, with all that waits written, when this is dropped.
pub(super) struct WriterThread {
    jobs: Option<mpsc::Sender<WriteJob>>,
    thread: Option<JoinHandle<()>>,
    failure: watch::Receiver<Option<StoreError>>,
}

impl WriterThread {
    pub(super) fn start(connection: Connection, path: PathBuf, options: SqliteOptions) -> Result<Self, StoreError> {
        let (jobs, waiting) = mpsc::channel(WRITE_QUEUE_CAPACITY);
        let what = format!("start the writer of {}", path.display());
        let log = WalSyncer::open(&connection, &path)?;
        let broken = log.failure_watch();
        let thread = std::thread::Builder::new().name("capstan-sqlite".to_owned());
        let waiting = WriteJobQueue { jobs: waiting, waker: None };
        let thread = thread.spawn(move || run_writer(&connection, &path, log, options, waiting));
        let thread = thread.map_err(|error| StoreError::io(what, error))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), failure: broken })
    }

    /// Writes a batch and returns when what it promises holds.
    pub(super) async fn commit(&self, batch: Batch) -> CommitResult {
        let brought = Box::new(PreparedBatch { encoded: EncodedBatch::from_batch(&batch), batch });
        self.submit(|reply| WriteJob::Batch(brought, reply)).await?.result
    }

    /// Returns when nothing is written any more, and why.
    pub(super) async fn failure(&self) -> StoreError {
        let mut broken = self.failure.clone();
        let failure = broken.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match failure {
            Some(failure) => failure,
            // The thread has ended, and nobody writes.
            None => std::future::pending().await,
        }
    }

    /// Does something to the search index, in a transaction of its own.
    pub(super) async fn update_index(&self, work: IndexUpdate) -> Result<(), StoreError> {
        self.submit(|answer| WriteJob::Index(work, answer)).await?
    }

    async fn submit<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> WriteJob) -> Result<T, StoreError> {
        let stopped = || StoreError::io("write to the database", "the thread that writes has stopped");
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(job(answer)).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())
    }
}

impl Drop for WriterThread {
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

fn run_writer(
    connection: &Connection,
    path: &Path,
    log: WalSyncer,
    options: SqliteOptions,
    mut waiting: WriteJobQueue,
) {
    let largest = fail_point::max_group_batches().unwrap_or(MAX_GROUP_BATCHES);
    let statements = StatementCache::new(connection);
    let busy_timeout = options.busy_timeout;
    let mut table = GroupCommitter { connection, statements, path, cache: RowCache::default(), wal: log, busy_timeout };
    loop {
        let mut next = match waiting.next_job(table.wal.sync_deadline()) {
            NextWriteJob::Job(job) => Some(job),
            NextWriteJob::TimedOut => {
                let _told = table.sync_pending();
                continue;
            }
            NextWriteJob::Closed => break,
        };
        let mut group = Vec::new();
        while let Some(job) = next.take() {
            match job {
                WriteJob::Batch(brought, reply) => group.push((brought, reply)),
                WriteJob::Index(work, answer) => {
                    // Whoever came before is not kept waiting by it.
                    table.write_group(std::mem::take(&mut group));
                    let _ = answer.send(table.in_transaction(|table| table.apply_index_update(work)));
                }
            }
            if group.len() < largest {
                next = waiting.jobs.try_recv().ok();
            }
        }
        table.write_group(group);
    }
    let _told = table.sync_pending();
}

/// What waits to be written by a thread.
struct WriteJobQueue {
    jobs: mpsc::Receiver<WriteJob>,
    waker: Option<Waker>,
}

enum NextWriteJob {
    Job(WriteJob),
    /// Nothing has come in time.
    TimedOut,
    /// Nothing will ever come.
    Closed,
}

/// Wakes a thread.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl WriteJobQueue {
    /// What comes next, if anything comes until then.
    fn next_job(&mut self, until: Option<Instant>) -> NextWriteJob {
        let this_thread = || Waker::from(Arc::new(ThreadWaker(std::thread::current())));
        let waker = self.waker.get_or_insert_with(this_thread);
        loop {
            match self.jobs.poll_recv(&mut Context::from_waker(waker)) {
                Poll::Ready(Some(job)) => return NextWriteJob::Job(job),
                Poll::Ready(None) => return NextWriteJob::Closed,
                Poll::Pending => {}
            }
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(Duration::ZERO) => return NextWriteJob::TimedOut,
                Some(left) => std::thread::park_timeout(left),
            }
        }
    }
}

/// Where the thread writes.
struct GroupCommitter<'a> {
    connection: &'a Connection,
    statements: StatementCache<'a>,
    path: &'a Path,
    cache: RowCache,
    wal: WalSyncer,
    /// How long another process that writes is waited for.
    busy_timeout: Duration,
}

/// What keeps the batches of a group apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchIsolation {
    /// Nothing: each is expected to go through, or to be refused before it writes.
    Shared,
    /// A savepoint each, so that one can be taken back alone.
    Savepoints,
}

impl GroupCommitter<'_> {
    /// Writes batches, and answers: those who were promised it, when the disk has what was written.
    fn write_group(&mut self, group: Vec<(Box<PreparedBatch>, oneshot::Sender<CommitReply>)>) {
        if group.is_empty() {
            return;
        }
        let (mut group, waiting): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let point = fail_point::FailPoint::for_batches(group.iter().map(|brought| &brought.batch));
        let answers = match self.commit_group(&mut group, &point) {
            Ok(answers) => {
                point.after_commit();
                answers
            }
            Err(failed) => {
                // Nothing of it was written. What came before it is on disk when that is told: whoever hears of a failure that
                // may pass may tell others that it is kept.
                let failed = self.sync_pending().err().unwrap_or(failed);
                for (brought, to) in group.into_iter().zip(waiting) {
                    send_reply(CommitReply { result: Err(failed.clone()), prepared: brought }, to);
                }
                return;
            }
        };
        let replies =
            answers.into_iter().zip(group).map(|(answer, brought)| CommitReply { result: answer, prepared: brought });
        let waits_for_disk = |(reply, _): &(CommitReply, _)| {
            reply.result.is_err() || reply.prepared.batch.durability == CommitDurability::Durable
        };
        let (durable, ordered): (Vec<_>, Vec<_>) = replies.zip(waiting).partition(waits_for_disk);
        let is_asked = !durable.is_empty();
        for (reply, to) in ordered {
            send_reply(reply, to);
        }
        if !is_asked {
            self.wal.mark_unsynced();
            if self.wal.sync_deadline().is_some_and(|due| due <= Instant::now()) {
                let _told = self.sync_pending();
            }
            return;
        }
        let synced = self.wal.sync();
        for (reply, to) in durable {
            match &synced {
                Ok(()) => send_reply(reply, to),
                Err(error) => send_reply(CommitReply { result: Err(error.clone()), ..reply }, to),
            }
        }
    }

    /// Syncs what nobody waits for, if there is anything. Whoever writes next hears that it failed.
    fn sync_pending(&mut self) -> Result<(), StoreError> {
        if self.wal.sync_deadline().is_none() {
            return Ok(());
        }
        self.wal.sync()
    }

    /// An error means that nothing was written.
    fn commit_group(
        &mut self,
        group: &mut [Box<PreparedBatch>],
        point: &fail_point::FailPoint,
    ) -> Result<Vec<CommitResult>, StoreError> {
        let (is_one, was_late) = (group.len() == 1, Cell::new(false));
        let mut apply = |apart| {
            self.in_transaction(|table| {
                let applied = table.apply_group(group, apart);
                was_late.set(applied.is_err() && !table.connection.is_autocommit());
                let answers = applied?;
                point.before_commit();
                Ok(answers)
            })
        };
        match apply(BatchIsolation::Shared) {
            Err(_) if was_late.get() && !is_one => apply(BatchIsolation::Savepoints),
            done => done,
        }
    }

    /// An error means that nothing was written.
    fn in_transaction<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if let Some(failure) = self.wal.failure() {
            return Err(failure);
        }
        let written = self.begin_transaction().and_then(|()| {
            self.cache.invalidate_if_changed(self.connection).map_err(|error| store_error(self.path, &error))?;
            let done = work(self)?;
            self.execute("COMMIT")?;
            Ok(done)
        });
        written.inspect_err(|_| {
            self.cache.clear();
            // It may be over already: then there is nothing to roll back.
            if !self.connection.is_autocommit()
                && let Err(error) = self.execute("ROLLBACK")
            {
                tracing::error!(%error, "a failed transaction could not be rolled back");
            }
        })
    }

    /// Begins a transaction. Another process that writes may be waited for, but what is written already is not left
    /// unsynced meanwhile.
    fn begin_transaction(&mut self) -> Result<(), StoreError> {
        if self.wal.sync_deadline().is_some() {
            self.set_busy_timeout(Duration::ZERO)?;
            let begun = self.execute("BEGIN IMMEDIATE");
            self.set_busy_timeout(self.busy_timeout)?;
            match begun {
                Err(StoreError::Busy { .. }) => self.sync_pending()?,
                begun => return begun,
            }
        }
        self.execute("BEGIN IMMEDIATE")
    }

    fn set_busy_timeout(&self, time: Duration) -> Result<(), StoreError> {
        self.connection.busy_timeout(time).map_err(|error| store_error(self.path, &error))
    }

    /// Applies every batch. An error means that none of the whole group may be written.
    fn apply_group(
        &mut self,
        group: &mut [Box<PreparedBatch>],
        apart: BatchIsolation,
    ) -> Result<Vec<CommitResult>, StoreError> {
        let mut answers = Vec::with_capacity(group.len());
        for brought in group {
            let PreparedBatch { batch, encoded: written } = &mut **brought;
            answers.push(match apart {
                BatchIsolation::Shared => self.apply_batch(batch, written)?,
                BatchIsolation::Savepoints => self.apply_in_savepoint(batch, written)?,
            });
        }
        Ok(answers)
    }

    /// Applies a batch that cannot be taken back. An error means that it was refused too late.
    fn apply_batch(&mut self, batch: &mut Batch, written: &EncodedBatch) -> Result<CommitResult, StoreError> {
        let before = self.connection.total_changes();
        let Self { connection, statements, path, cache: known, .. } = self;
        match rules::apply(
            &mut SqlRows { connection, statements, path, cache: known, encoded: written, fact_index: 0 },
            batch,
            Timestamp::now(),
        ) {
            Err(error) if connection.is_autocommit() || connection.total_changes() != before => Err(error),
            answer => Ok(answer),
        }
    }

    fn apply_in_savepoint(&mut self, batch: &mut Batch, written: &EncodedBatch) -> Result<CommitResult, StoreError> {
        self.execute("SAVEPOINT batch")?;
        let Self { connection, statements, path, cache: known, .. } = self;
        let answer = rules::apply(
            &mut SqlRows { connection, statements, path, cache: known, encoded: written, fact_index: 0 },
            batch,
            Timestamp::now(),
        );
        if let Err(error) = &answer {
            if self.connection.is_autocommit() {
                // SQLite gave up the whole transaction, as it does when the disk is full.
                return Err(error.clone());
            }
            self.execute("ROLLBACK TO batch")?;
            self.cache.clear();
        }
        self.execute("RELEASE batch")?;
        Ok(answer)
    }

    fn apply_index_update(&mut self, work: IndexUpdate) -> Result<(), StoreError> {
        let changed = match work {
            IndexUpdate::Add(chunk) => search::write_chunk(self.connection, &chunk),
            IndexUpdate::Clear => search::clear_index(self.connection),
        };
        changed.map_err(|error| store_error(self.path, &error))
    }

    fn execute(&self, sql: &'static str) -> Result<(), StoreError> {
        self.statements.execute(sql, []).map(drop).map_err(|error| store_error(self.path, &error))
    }
}

fn send_reply(reply: CommitReply, to: oneshot::Sender<CommitReply>) {
    // Whoever asked may have gone; what was written stays written.
    let _gone = to.send(reply);
}
