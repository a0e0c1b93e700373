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
use capstan_tape::{Batch, Committed, Promise, StoreError, rules};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::SqliteOptions;
use super::error::store_error;
use super::fail_point;
use super::known::Known;
use super::log::Log;
use super::rows::SqlRows;
use super::search::{self, Chunk};
use super::statements::Statements;
use super::written::Written;

/// How many batches may wait. A writer that finds no room waits too.
const WAITING: usize = 1024;
/// How many batches share a transaction, so that none waits for long.
const GROUP: usize = 256;

type Answer = Result<Committed, StoreError>;

/// Something that waits to be written, and who wants to know.
enum Job {
    Batch(Box<Brought>, oneshot::Sender<Reply>),
    Index(IndexWork, oneshot::Sender<Result<(), StoreError>>),
}

/// A batch, and what of it is written down already.
struct Brought {
    batch: Batch,
    written: Written,
}

/// An answer, and the batch that it is about: all sessions wait for the thread that writes, so whoever brought a batch drops
/// it.
struct Reply {
    answer: Answer,
    brought: Box<Brought>,
}

/// Something to be done to the search index, which no batch depends on.
pub(super) enum IndexWork {
    /// Entries are added.
    Add(Chunk),
    /// It is emptied.
    Clear,
}

/// The thread that writes. It ends, with all that waits written, when this is dropped.
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    broken: watch::Receiver<Option<StoreError>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, path: PathBuf, options: SqliteOptions) -> Result<Self, StoreError> {
        let (jobs, waiting) = mpsc::channel(WAITING);
        let what = format!("start the writer of {}", path.display());
        let log = Log::of(&connection, &path)?;
        let broken = log.broken();
        let thread = std::thread::Builder::new().name("capstan-sqlite".to_owned());
        let waiting = Waiting { jobs: waiting, waker: None };
        let thread = thread.spawn(move || write_all(&connection, &path, log, options, waiting));
        let thread = thread.map_err(|error| StoreError::io(what, error))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), broken })
    }

    /// Writes a batch and returns when what it promises holds.
    pub(super) async fn commit(&self, batch: Batch) -> Answer {
        let brought = Box::new(Brought { written: Written::of(&batch), batch });
        self.ask(|reply| Job::Batch(brought, reply)).await?.answer
    }

    /// Returns when nothing is written any more, and why.
    pub(super) async fn broken(&self) -> StoreError {
        let mut broken = self.broken.clone();
        let failure = broken.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match failure {
            Some(failure) => failure,
            // The thread has ended, and nobody writes.
            None => std::future::pending().await,
        }
    }

    /// Does something to the search index, in a transaction of its own.
    pub(super) async fn index(&self, work: IndexWork) -> Result<(), StoreError> {
        self.ask(|answer| Job::Index(work, answer)).await?
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, StoreError> {
        let stopped = || StoreError::io("write to the database", "the thread that writes has stopped");
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(job(answer)).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())
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

fn write_all(connection: &Connection, path: &Path, log: Log, options: SqliteOptions, mut waiting: Waiting) {
    let largest = fail_point::largest_group().unwrap_or(GROUP);
    let statements = Statements::new(connection);
    let busy_timeout = options.busy_timeout;
    let mut table = Table { connection, statements, path, known: Known::default(), log, busy_timeout };
    loop {
        let mut next = match waiting.next(table.log.due()) {
            Next::Job(job) => Some(job),
            Next::Nothing => {
                let _told = table.sync_unasked();
                continue;
            }
            Next::End => break,
        };
        let mut group = Vec::new();
        while let Some(job) = next.take() {
            match job {
                Job::Batch(brought, reply) => group.push((brought, reply)),
                Job::Index(work, answer) => {
                    // Whoever came before is not kept waiting by it.
                    table.write_group(std::mem::take(&mut group));
                    let _ = answer.send(table.in_transaction(|table| table.change_index(work)));
                }
            }
            if group.len() < largest {
                next = waiting.jobs.try_recv().ok();
            }
        }
        table.write_group(group);
    }
    let _told = table.sync_unasked();
}

/// What waits to be written by a thread.
struct Waiting {
    jobs: mpsc::Receiver<Job>,
    waker: Option<Waker>,
}

enum Next {
    Job(Job),
    /// Nothing has come in time.
    Nothing,
    /// Nothing will ever come.
    End,
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Waiting {
    /// What comes next, if anything comes until then.
    fn next(&mut self, until: Option<Instant>) -> Next {
        let this_thread = || Waker::from(Arc::new(Unpark(std::thread::current())));
        let waker = self.waker.get_or_insert_with(this_thread);
        loop {
            match self.jobs.poll_recv(&mut Context::from_waker(waker)) {
                Poll::Ready(Some(job)) => return Next::Job(job),
                Poll::Ready(None) => return Next::End,
                Poll::Pending => {}
            }
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(Duration::ZERO) => return Next::Nothing,
                Some(left) => std::thread::park_timeout(left),
            }
        }
    }
}

/// Where the thread writes.
struct Table<'a> {
    connection: &'a Connection,
    statements: Statements<'a>,
    path: &'a Path,
    known: Known,
    log: Log,
    /// How long another process that writes is waited for.
    busy_timeout: Duration,
}

/// What keeps the batches of a group apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Apart {
    /// Nothing: each is expected to go through, or to be refused before it writes.
    Nothing,
    /// A savepoint each, so that one can be taken back alone.
    Savepoints,
}

impl Table<'_> {
    /// Writes batches, and answers: those who were promised it, when the disk has what was written.
    fn write_group(&mut self, group: Vec<(Box<Brought>, oneshot::Sender<Reply>)>) {
        if group.is_empty() {
            return;
        }
        let (mut group, waiting): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let point = fail_point::Point::of(group.iter().map(|brought| &brought.batch));
        let answers = match self.commit_group(&mut group, &point) {
            Ok(answers) => {
                point.after();
                answers
            }
            Err(failed) => {
                // Nothing of it was written. What came before it is on disk when that is told: whoever hears of a failure that
                // may pass may tell others that it is kept.
                let failed = self.sync_unasked().err().unwrap_or(failed);
                for (brought, to) in group.into_iter().zip(waiting) {
                    give(Reply { answer: Err(failed.clone()), brought }, to);
                }
                return;
            }
        };
        let replies = answers.into_iter().zip(group).map(|(answer, brought)| Reply { answer, brought });
        let waits_for_disk =
            |(reply, _): &(Reply, _)| reply.answer.is_err() || reply.brought.batch.promise == Promise::Durable;
        let (durable, ordered): (Vec<_>, Vec<_>) = replies.zip(waiting).partition(waits_for_disk);
        let is_asked = !durable.is_empty();
        for (reply, to) in ordered {
            give(reply, to);
        }
        if !is_asked {
            self.log.wrote();
            if self.log.due().is_some_and(|due| due <= Instant::now()) {
                let _told = self.sync_unasked();
            }
            return;
        }
        let synced = self.log.sync();
        for (reply, to) in durable {
            match &synced {
                Ok(()) => give(reply, to),
                Err(error) => give(Reply { answer: Err(error.clone()), ..reply }, to),
            }
        }
    }

    /// Syncs what nobody waits for, if there is anything. Whoever writes next hears that it failed.
    fn sync_unasked(&mut self) -> Result<(), StoreError> {
        if self.log.due().is_none() {
            return Ok(());
        }
        self.log.sync()
    }

    /// An error means that nothing was written.
    fn commit_group(
        &mut self,
        group: &mut [Box<Brought>],
        point: &fail_point::Point,
    ) -> Result<Vec<Answer>, StoreError> {
        let (is_one, was_late) = (group.len() == 1, Cell::new(false));
        let mut apply = |apart| {
            self.in_transaction(|table| {
                let applied = table.apply_group(group, apart);
                was_late.set(applied.is_err() && !table.connection.is_autocommit());
                let answers = applied?;
                point.before();
                Ok(answers)
            })
        };
        match apply(Apart::Nothing) {
            Err(_) if was_late.get() && !is_one => apply(Apart::Savepoints),
            done => done,
        }
    }

    /// An error means that nothing was written.
    fn in_transaction<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if let Some(failure) = self.log.failure() {
            return Err(failure);
        }
        let written = self.begin().and_then(|()| {
            self.known.heed(self.connection).map_err(|error| store_error(self.path, &error))?;
            let done = work(self)?;
            self.execute("COMMIT")?;
            Ok(done)
        });
        written.inspect_err(|_| {
            self.known.forget();
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
    fn begin(&mut self) -> Result<(), StoreError> {
        if self.log.due().is_some() {
            self.wait_for_others(Duration::ZERO)?;
            let begun = self.execute("BEGIN IMMEDIATE");
            self.wait_for_others(self.busy_timeout)?;
            match begun {
                Err(StoreError::Busy { .. }) => self.sync_unasked()?,
                begun => return begun,
            }
        }
        self.execute("BEGIN IMMEDIATE")
    }

    fn wait_for_others(&self, time: Duration) -> Result<(), StoreError> {
        self.connection.busy_timeout(time).map_err(|error| store_error(self.path, &error))
    }

    /// Applies every batch. An error means that none of the whole group may be written.
    fn apply_group(&mut self, group: &mut [Box<Brought>], apart: Apart) -> Result<Vec<Answer>, StoreError> {
        let mut answers = Vec::with_capacity(group.len());
        for brought in group {
            let Brought { batch, written } = &mut **brought;
            answers.push(match apart {
                Apart::Nothing => self.apply(batch, written)?,
                Apart::Savepoints => self.apply_alone(batch, written)?,
            });
        }
        Ok(answers)
    }

    /// Applies a batch that cannot be taken back. An error means that it was refused too late.
    fn apply(&mut self, batch: &mut Batch, written: &Written) -> Result<Answer, StoreError> {
        let before = self.connection.total_changes();
        let Self { connection, statements, path, known, .. } = self;
        match rules::apply(
            &mut SqlRows { connection, statements, path, known, written, fact: 0 },
            batch,
            Timestamp::now(),
        ) {
            Err(error) if connection.is_autocommit() || connection.total_changes() != before => Err(error),
            answer => Ok(answer),
        }
    }

    fn apply_alone(&mut self, batch: &mut Batch, written: &Written) -> Result<Answer, StoreError> {
        self.execute("SAVEPOINT batch")?;
        let Self { connection, statements, path, known, .. } = self;
        let answer = rules::apply(
            &mut SqlRows { connection, statements, path, known, written, fact: 0 },
            batch,
            Timestamp::now(),
        );
        if let Err(error) = &answer {
            if self.connection.is_autocommit() {
                // SQLite gave up the whole transaction, as it does when the disk is full.
                return Err(error.clone());
            }
            self.execute("ROLLBACK TO batch")?;
            self.known.forget();
        }
        self.execute("RELEASE batch")?;
        Ok(answer)
    }

    fn change_index(&mut self, work: IndexWork) -> Result<(), StoreError> {
        let changed = match work {
            IndexWork::Add(chunk) => search::write(self.connection, &chunk),
            IndexWork::Clear => search::clear(self.connection),
        };
        changed.map_err(|error| store_error(self.path, &error))
    }

    fn execute(&self, sql: &'static str) -> Result<(), StoreError> {
        self.statements.execute(sql, []).map(drop).map_err(|error| store_error(self.path, &error))
    }
}

fn give(reply: Reply, to: oneshot::Sender<Reply>) {
    // Whoever asked may have gone; what was written stays written.
    let _gone = to.send(reply);
}
