//! Writer thread with group commit.
//!
//! # Group commit
//!
//! The thread applies all waiting batches in one transaction. It replies to `Ordered` batches after `COMMIT` and
//! to `Durable` ones after the write-ahead log is synced, so that many batches share one sync.
//!
//! # Isolation of batches
//!
//! A rejected batch does not affect the others. Most batches are rejected before they write anything, so a group first
//! runs without savepoints. If a batch is rejected after it wrote something, the transaction is rolled back and the
//! group is applied again with a savepoint for each batch.

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
use super::error::{store_error, thread_error};
use super::fail_point;
use super::file_guard::sidecar;
use super::row_cache::RowCache;
use super::schema;
use super::search::{self, IndexChunk};
use super::sql_rows::SqlRows;
use super::statement_cache::StatementCache;
use super::wal_sync::WalSyncer;

/// Maximum number of queued jobs. Further callers wait for a slot.
const WRITE_QUEUE_CAPACITY: usize = 1024;
/// Maximum number of batches in a transaction, which bounds the latency of each.
const MAX_GROUP_BATCHES: usize = 256;

/// Ratio of a long log to the length at which it is checkpointed.
const LOG_GROWTH_FACTOR: u64 = 2;

type CommitResult = Result<CommitReceipt, StoreError>;

/// Queued job with the channel for its reply.
pub(super) enum WriteJob {
    Batch(Box<PreparedBatch>, oneshot::Sender<CommitReply>),
    Index(IndexUpdate, oneshot::Sender<Result<(), StoreError>>),
    /// Find the cause of the error of a read.
    Diagnose(StoreError, oneshot::Sender<StoreError>),
    /// Defect of the thread.
    #[cfg(test)]
    Panic,
}

/// Batch with the columns that were encoded beforehand.
pub(super) struct PreparedBatch {
    batch: Batch,
    encoded: EncodedBatch,
}

impl PreparedBatch {
    pub(super) fn new(batch: Batch) -> Self {
        Self { encoded: EncodedBatch::from_batch(&batch), batch }
    }
}

/// Reply to a batch. Carries the batch back so that the caller drops it: freeing it on the writer thread would delay
/// every session.
pub(super) struct CommitReply {
    pub(super) result: CommitResult,
    prepared: Box<PreparedBatch>,
}

/// Update of the search index, which no batch depends on.
pub(super) enum IndexUpdate {
    /// Add entries.
    Add(IndexChunk),
    /// Clear the index.
    Clear,
}

/// Handle of the writer thread. Dropping it writes the queued jobs and joins the thread.
pub(super) struct WriterThread {
    jobs: Option<mpsc::Sender<WriteJob>>,
    thread: Option<JoinHandle<()>>,
    failure: watch::Receiver<Option<StoreError>>,
}

impl WriterThread {
    pub(super) fn start(connection: Connection, path: PathBuf, options: SqliteOptions) -> Result<Self, StoreError> {
        let (jobs, receiver) = mpsc::channel(WRITE_QUEUE_CAPACITY);
        let action = format!("start the writer thread of {}", path.display());
        let wal = WalSyncer::open(&connection, &path)?;
        let failure = wal.failure_watch();
        let thread = std::thread::Builder::new().name("capstan-sqlite".to_owned());
        let queue = WriteJobQueue { jobs: receiver, waker: None };
        let thread = thread.spawn(move || run_writer(&connection, &path, wal, options, queue));
        let thread = thread.map_err(|error| thread_error(action, &error))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), failure })
    }

    /// Waits until the writer has failed permanently, and returns the error.
    pub(super) async fn wait_for_failure(&self) -> StoreError {
        let mut watch = self.failure.clone();
        let failure = watch.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match failure {
            Some(failure) => failure,
            // The thread has ended without a failure: it panicked.
            None => StoreError::WriterStopped,
        }
    }

    /// Queue of the thread, which does not keep the thread running.
    pub(super) fn weak_queue(&self) -> Option<mpsc::WeakSender<WriteJob>> {
        self.jobs.as_ref().map(mpsc::Sender::downgrade)
    }

    /// Updates the search index, in a transaction of its own.
    pub(super) async fn update_index(&self, update: IndexUpdate) -> Result<(), StoreError> {
        self.submit(|reply| WriteJob::Index(update, reply)).await?
    }

    /// Queues a job and waits for its reply. The reply to a batch comes when its durability is reached.
    pub(super) async fn submit<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> WriteJob) -> Result<T, StoreError> {
        let stopped = || StoreError::WriterStopped;
        let (sender, reply) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(job(sender)).await.map_err(|_| stopped())?;
        reply.await.map_err(|_| stopped())
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        // The thread ends when its channel is closed.
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer thread of the database panicked");
        }
    }
}

fn run_writer(connection: &Connection, path: &Path, wal: WalSyncer, options: SqliteOptions, mut queue: WriteJobQueue) {
    let max_batches = fail_point::max_group_batches().unwrap_or(MAX_GROUP_BATCHES);
    let statements = StatementCache::new(connection);
    let busy_timeout = options.busy_timeout;
    let mut committer = GroupCommitter { connection, statements, path, cache: RowCache::default(), wal, busy_timeout };
    let mut log_limiter = LogLimiter::new(path, options);
    // Another process may have left a long log beside a reader.
    log_limiter.schedule_check();
    loop {
        let deadlines = [committer.wal.sync_deadline(), log_limiter.check_at];
        let mut next = match queue.next_job(deadlines.into_iter().flatten().min()) {
            NextWriteJob::Job(job) => Some(job),
            NextWriteJob::TimedOut => {
                committer.sync_pending_ignoring_errors();
                if log_limiter.is_due() && committer.wal.check_files(connection).is_ok() {
                    log_limiter.check(connection);
                }
                continue;
            }
            NextWriteJob::Closed => break,
        };
        let mut group = Vec::new();
        while let Some(job) = next.take() {
            match job {
                WriteJob::Batch(prepared, reply) => group.push((prepared, reply)),
                WriteJob::Index(update, reply) => {
                    // Batches that were queued earlier do not wait for the index.
                    committer.write_group(std::mem::take(&mut group));
                    let _ = reply.send(committer.in_transaction(|committer| committer.apply_index_update(update)));
                }
                WriteJob::Diagnose(error, reply) => {
                    let _ = reply.send(committer.diagnose_read_error(error));
                }
                #[cfg(test)]
                WriteJob::Panic => panic!("requested by a test"),
            }
            if group.len() < max_batches {
                next = queue.jobs.try_recv().ok();
            }
        }
        committer.write_group(group);
        log_limiter.schedule_check();
    }
    committer.sync_pending_ignoring_errors();
    committer.wal.close(connection);
}

/// Truncates a log that grew while another program read the database, when that program is done and the host is idle.
/// While batches are written, the size limit of the log does that.
struct LogLimiter {
    log: PathBuf,
    max_bytes: u64,
    busy_timeout: Duration,
    interval: Duration,
    /// Time of the next check; `None` while the log is short.
    check_at: Option<Instant>,
}

impl LogLimiter {
    fn new(database: &Path, options: SqliteOptions) -> Self {
        let (max_bytes, busy_timeout) = (schema::max_idle_log_bytes(options), options.busy_timeout);
        let interval = options.log_check_interval;
        Self { log: sidecar(database, "-wal"), max_bytes, busy_timeout, interval, check_at: None }
    }

    /// Schedules a check if the log is much longer than the length at which it is checkpointed.
    fn schedule_check(&mut self) {
        if self.check_at.is_none() && self.log_bytes() > self.max_bytes * LOG_GROWTH_FACTOR {
            self.check_at = Some(Instant::now() + self.interval);
        }
    }

    /// Returns true if a check is due, and not due again before it was scheduled.
    fn is_due(&mut self) -> bool {
        let is_due = self.check_at.is_some_and(|due| due <= Instant::now());
        if is_due {
            self.check_at = None;
        }
        is_due
    }

    fn check(&mut self, connection: &Connection) {
        self.truncate(connection);
        self.schedule_check();
    }

    /// Truncates the log, unless another connection still reads it.
    fn truncate(&self, connection: &Connection) {
        let run = || {
            connection.busy_timeout(Duration::ZERO)?;
            let is_blocked = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
            connection.busy_timeout(self.busy_timeout)?;
            is_blocked
        };
        if !matches!(run(), Ok(false)) {
            tracing::debug!(log = %self.log.display(), "the log is long, and another connection reads it");
        }
    }

    fn log_bytes(&self) -> u64 {
        self.log.metadata().map_or(0, |log| log.len())
    }
}

/// Queue of a writer thread.
struct WriteJobQueue {
    jobs: mpsc::Receiver<WriteJob>,
    waker: Option<Waker>,
}

enum NextWriteJob {
    Job(WriteJob),
    /// No job arrived before the deadline.
    TimedOut,
    /// All senders are gone.
    Closed,
}

/// Waker that unparks a thread.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl WriteJobQueue {
    /// Waits for the next job, at most until the deadline.
    fn next_job(&mut self, deadline: Option<Instant>) -> NextWriteJob {
        let thread_waker = || Waker::from(Arc::new(ThreadWaker(std::thread::current())));
        let waker = self.waker.get_or_insert_with(thread_waker);
        loop {
            match self.jobs.poll_recv(&mut Context::from_waker(waker)) {
                Poll::Ready(Some(job)) => return NextWriteJob::Job(job),
                Poll::Ready(None) => return NextWriteJob::Closed,
                Poll::Pending => {}
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(Duration::ZERO) => return NextWriteJob::TimedOut,
                Some(remaining) => std::thread::park_timeout(remaining),
            }
        }
    }
}

/// Applies groups of batches to the database and syncs the log.
struct GroupCommitter<'a> {
    connection: &'a Connection,
    statements: StatementCache<'a>,
    path: &'a Path,
    cache: RowCache,
    wal: WalSyncer,
    /// Maximum time to wait for the write lock while another process holds it.
    busy_timeout: Duration,
}

/// Isolation of the batches of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchIsolation {
    /// No isolation. Each batch must succeed or be rejected before it writes.
    None,
    /// A savepoint for each batch, so that one can be rolled back alone.
    Savepoints,
}

impl GroupCommitter<'_> {
    /// Writes batches and replies to them, to durable ones after the sync.
    fn write_group(&mut self, group: Vec<(Box<PreparedBatch>, oneshot::Sender<CommitReply>)>) {
        if group.is_empty() {
            return;
        }
        let (mut group, senders): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let point = fail_point::FailPoint::for_batches(group.iter().map(|prepared| &prepared.batch));
        let results = match self.commit_group(&mut group, &point) {
            Ok(results) => {
                point.after_commit();
                results
            }
            Err(error) => {
                // Nothing of the group was written. Earlier commits are synced before the reply: a caller may react to
                // a transient error by reporting them as stored.
                let error = self.sync_pending().err().unwrap_or(error);
                let error = self.fail_if_damaged(error);
                for (prepared, sender) in group.into_iter().zip(senders) {
                    send_reply(CommitReply { result: Err(error.clone()), prepared }, sender);
                }
                return;
            }
        };
        let results = results.into_iter().map(|result| result.map_err(|error| self.fail_if_damaged(error)));
        let results: Vec<CommitResult> = results.collect();
        for (prepared, result) in group.iter().zip(&results) {
            if let Ok(receipt) = result {
                self.wal.record_commit(&prepared.batch, receipt);
            }
        }
        let replies = results.into_iter().zip(group).map(|(result, prepared)| CommitReply { result, prepared });
        // A rejection may be due to an earlier commit (such as a duplicate event), which must be durable before the
        // caller learns of it.
        let needs_sync = |(reply, _): &(CommitReply, _)| {
            reply.result.is_err() || reply.prepared.batch.durability == CommitDurability::Durable
        };
        let (after_sync, at_once): (Vec<_>, Vec<_>) = replies.zip(senders).partition(needs_sync);
        for (reply, sender) in at_once {
            send_reply(reply, sender);
        }
        if after_sync.is_empty() {
            self.wal.mark_unsynced();
            if self.wal.sync_deadline().is_some_and(|deadline| deadline <= Instant::now()) {
                self.sync_pending_ignoring_errors();
            }
            return;
        }
        let synced = self.wal.sync(self.connection);
        for (reply, sender) in after_sync {
            match &synced {
                Ok(()) => send_reply(reply, sender),
                Err(error) => send_reply(CommitReply { result: Err(error.clone()), ..reply }, sender),
            }
        }
    }

    /// Fails permanently if the database is damaged: no later commit to it can be relied on. The search index is not checked
    /// here, because it can be built again.
    fn fail_if_damaged(&mut self, error: StoreError) -> StoreError {
        if error.is_damaged_file() { self.wal.fail(error) } else { error }
    }

    /// Looks at the files after a read failed, and returns the error that tells the cause.
    fn diagnose_read_error(&mut self, error: StoreError) -> StoreError {
        match self.wal.check_files(self.connection) {
            Err(cause) if !cause.is_transient() => cause,
            _ => self.fail_if_damaged(error),
        }
    }

    /// Syncs commits that no caller waits for, and leaves a failure to the next commit.
    fn sync_pending_ignoring_errors(&mut self) {
        // A failure is logged by the syncer and returned to the next commit.
        let _failure = self.sync_pending();
    }

    /// Syncs commits that no caller waits for, if there are any.
    fn sync_pending(&mut self) -> Result<(), StoreError> {
        if self.wal.sync_deadline().is_none() {
            return Ok(());
        }
        self.wal.sync(self.connection)
    }

    /// Commits a group. An error means that nothing was written.
    fn commit_group(
        &mut self,
        group: &mut [Box<PreparedBatch>],
        point: &fail_point::FailPoint,
    ) -> Result<Vec<CommitResult>, StoreError> {
        let (is_single, is_late_rejection) = (group.len() == 1, Cell::new(false));
        let mut apply = |isolation| {
            self.in_transaction(|committer| {
                let applied = committer.apply_group(group, isolation);
                is_late_rejection.set(applied.is_err() && !committer.connection.is_autocommit());
                let results = applied?;
                point.before_commit();
                Ok(results)
            })
        };
        match apply(BatchIsolation::None) {
            Err(_) if is_late_rejection.get() && !is_single => apply(BatchIsolation::Savepoints),
            results => results,
        }
    }

    /// Runs a transaction. An error means that nothing was written.
    fn in_transaction<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.wal.check_files(self.connection)?;
        let written = self.begin_transaction().and_then(|()| {
            self.wal.check_transaction(self.connection)?;
            self.notice_other_connections()?;
            let output = work(self)?;
            self.execute("COMMIT")?;
            Ok(output)
        });
        let written = written.inspect_err(|_| {
            self.cache.clear();
            // SQLite may have ended the transaction itself.
            if !self.connection.is_autocommit()
                && let Err(error) = self.execute("ROLLBACK")
            {
                tracing::error!(%error, "a failed transaction could not be rolled back");
            }
        });
        match written {
            // The files may have been changed meanwhile, which explains the error better.
            Err(error) if error.is_damaged_file() || matches!(error, StoreError::Io { .. }) => {
                Err(self.wal.check_files(self.connection).err().unwrap_or(error))
            }
            written => written,
        }
    }

    /// Clears the cache if another connection has committed. Fails for good if it migrated the database to a schema
    /// that this program does not know.
    fn notice_other_connections(&mut self) -> Result<(), StoreError> {
        let failed = |error: rusqlite::Error| store_error(self.path, &error);
        if !self.cache.invalidate_if_changed(self.connection).map_err(failed)? {
            return Ok(());
        }
        match schema::check_version(self.connection, self.path) {
            Err(error @ StoreError::SchemaTooNew { .. }) => Err(self.wal.fail(error)),
            checked => checked.map(drop),
        }
    }

    /// Begins a transaction. Syncs earlier commits before it waits for the write lock while another process
    /// holds it.
    fn begin_transaction(&mut self) -> Result<(), StoreError> {
        if self.wal.sync_deadline().is_some() {
            self.set_busy_timeout(Duration::ZERO)?;
            let result = self.execute("BEGIN IMMEDIATE");
            self.set_busy_timeout(self.busy_timeout)?;
            match result {
                Err(StoreError::Busy { .. }) => self.sync_pending()?,
                result => return result,
            }
        }
        self.execute("BEGIN IMMEDIATE")
    }

    fn set_busy_timeout(&self, timeout: Duration) -> Result<(), StoreError> {
        self.connection.busy_timeout(timeout).map_err(|error| store_error(self.path, &error))
    }

    /// Applies every batch. An error means that the whole group must be rolled back.
    fn apply_group(
        &mut self,
        group: &mut [Box<PreparedBatch>],
        isolation: BatchIsolation,
    ) -> Result<Vec<CommitResult>, StoreError> {
        let mut results = Vec::with_capacity(group.len());
        for prepared in group {
            let PreparedBatch { batch, encoded } = &mut **prepared;
            results.push(match isolation {
                BatchIsolation::None => self.apply_batch(batch, encoded)?,
                BatchIsolation::Savepoints => self.apply_in_savepoint(batch, encoded)?,
            });
        }
        Ok(results)
    }

    /// Applies a batch without a savepoint. An outer error means that the transaction cannot be kept: the batch was
    /// rejected after it wrote something, or SQLite rolled back.
    fn apply_batch(&mut self, batch: &mut Batch, encoded: &EncodedBatch) -> Result<CommitResult, StoreError> {
        let changes_before = self.connection.total_changes();
        let Self { connection, statements, path, cache, .. } = self;
        match rules::apply(
            &mut SqlRows { connection, statements, path, cache, encoded, fact_index: 0 },
            batch,
            Timestamp::now(),
        ) {
            Err(error) if connection.is_autocommit() || connection.total_changes() != changes_before => Err(error),
            result => Ok(result),
        }
    }

    fn apply_in_savepoint(&mut self, batch: &mut Batch, encoded: &EncodedBatch) -> Result<CommitResult, StoreError> {
        self.execute("SAVEPOINT batch")?;
        let Self { connection, statements, path, cache, .. } = self;
        let result = rules::apply(
            &mut SqlRows { connection, statements, path, cache, encoded, fact_index: 0 },
            batch,
            Timestamp::now(),
        );
        if let Err(error) = &result {
            if self.connection.is_autocommit() {
                // SQLite rolled back the whole transaction, as it does when the disk is full.
                return Err(error.clone());
            }
            self.execute("ROLLBACK TO batch")?;
            self.cache.clear();
        }
        self.execute("RELEASE batch")?;
        Ok(result)
    }

    fn apply_index_update(&mut self, update: IndexUpdate) -> Result<(), StoreError> {
        let updated = match update {
            IndexUpdate::Add(chunk) => search::write_chunk(self.connection, &chunk),
            IndexUpdate::Clear => search::clear_index(self.connection),
        };
        updated.map_err(|error| store_error(self.path, &error))
    }

    fn execute(&self, sql: &'static str) -> Result<(), StoreError> {
        self.statements.execute(sql, []).map(drop).map_err(|error| store_error(self.path, &error))
    }
}

fn send_reply(reply: CommitReply, sender: oneshot::Sender<CommitReply>) {
    // The caller may have dropped its future; the commit stands regardless.
    let _undelivered = sender.send(reply);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema;

    #[test]
    fn x02_long_log_is_truncated_when_its_reader_has_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("capstan.db");
        let options = SqliteOptions { wal_checkpoint_pages: 8, ..SqliteOptions::default() };
        let connection = schema::open_writer(&path, options).unwrap();
        let mut limiter = LogLimiter::new(&path, options);
        let reader = Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM tapes").unwrap();
        let write = || {
            let sql = "INSERT OR REPLACE INTO blobs (hash, bytes) VALUES ('h', randomblob(200000))";
            connection.execute_batch(sql).unwrap();
        };
        write();
        write();
        limiter.schedule_check();
        assert!(limiter.check_at.is_some(), "{} bytes", limiter.log_bytes());
        limiter.truncate(&connection);
        assert!(limiter.log_bytes() > limiter.max_bytes, "the reader needs the log");
        reader.execute_batch("COMMIT").unwrap();
        limiter.truncate(&connection);
        assert_eq!(limiter.log_bytes(), 0);
        limiter.check_at = None;
        limiter.schedule_check();
        assert_eq!(limiter.check_at, None);
    }

    #[tokio::test]
    async fn x07_panic_of_the_thread_is_a_permanent_failure() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("capstan.db");
        let connection = schema::open_writer(&path, SqliteOptions::default()).unwrap();
        let writer = WriterThread::start(connection, path, SqliteOptions::default()).unwrap();
        assert!(writer.jobs.as_ref().unwrap().send(WriteJob::Panic).await.is_ok());
        assert_eq!(writer.wait_for_failure().await, StoreError::WriterStopped);
        assert_eq!(writer.update_index(IndexUpdate::Clear).await.unwrap_err(), StoreError::WriterStopped);
        assert!(!StoreError::WriterStopped.is_transient());
    }
}
