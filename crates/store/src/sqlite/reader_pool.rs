//! Pool of read-only connections, opened on demand.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use capstan_protocol::{FILE_LIMIT_BACKOFF, is_file_limit_error};
use capstan_tape::StoreError;
use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::error::store_error;
use super::reader::open_reader;
use super::reader_threads::ReaderThreads;
use super::writer::WriteJob;

/// Maximum number of concurrent reads; further ones wait.
const MAX_CONCURRENT_READS: usize = 4;

/// Maximum number of waits for a free file descriptor, about a minute in total. The read then fails.
const MAX_FILE_WAITS: u32 = 32;

/// Pool of read-only connections.
#[derive(Clone)]
pub(super) struct ReaderPool {
    path: Arc<PathBuf>,
    idle_connections: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    threads: ReaderThreads,
    /// Queue of the writer, which looks at the files after a read failed.
    writer: Option<mpsc::WeakSender<WriteJob>>,
}

impl ReaderPool {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path: Arc::new(path),
            idle_connections: Arc::default(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
            threads: ReaderThreads::default(),
            writer: None,
        }
    }

    /// The same pool, whose failed reads are reported to a writer: damage that a read finds is permanent.
    pub(super) fn reporting_to(self, writer: mpsc::WeakSender<WriteJob>) -> Self {
        Self { writer: Some(writer), ..self }
    }

    /// The same pool for reads of tables that can be built again, or whose damage is a result.
    pub(super) fn without_reports(&self) -> Self {
        Self { writer: None, ..self.clone() }
    }

    /// Creates a pool of exactly this connection.
    pub(super) fn with_connection(connection: Connection, path: PathBuf) -> Self {
        let idle_connections = Arc::new(Mutex::new(vec![connection]));
        let permits = Arc::new(Semaphore::new(1));
        Self { path: Arc::new(path), idle_connections, permits, threads: ReaderThreads::default(), writer: None }
    }

    /// Reads on another thread.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let stopped = |error: &dyn std::fmt::Display| StoreError::io("read from the database", error);
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|error| stopped(&error))?;
        let readers = self.clone();
        let (reply, result) = oneshot::channel();
        let work = move || {
            let result = readers.read_sync(read);
            // Before the reply: a process that exits after its last read must find the connections closed, or its log
            // stays behind.
            drop(readers);
            // A caller that no longer waits does not need the result.
            let _ = reply.send(result);
        };
        self.threads.run(work, permit).map_err(|error| stopped(&error))?;
        match result.await.map_err(|error| stopped(&error))? {
            Err(error) => Err(self.diagnose(error).await),
            read => read,
        }
    }

    /// Finds out if a read failed because the files were changed. The writer then refuses all further commits, as it does
    /// for a damaged file.
    async fn diagnose(&self, error: StoreError) -> StoreError {
        if !error.is_damaged_file() && !matches!(error, StoreError::Io { .. }) {
            return error;
        }
        let Some(writer) = self.writer.as_ref().and_then(mpsc::WeakSender::upgrade) else { return error };
        let (sender, reply) = oneshot::channel();
        if writer.send(WriteJob::Diagnose(error.clone(), sender)).await.is_err() {
            return error;
        }
        drop(writer);
        reply.await.unwrap_or(error)
    }

    /// Reads a few rows by key on the thread of the caller. The read takes microseconds, less than a switch to another
    /// thread.
    pub(super) async fn read_inline<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        // Opening a connection or waiting for one may block, so both happen on another thread.
        let Ok(_permit) = self.permits.try_acquire() else { return self.read(read).await };
        let Some(connection) = self.take_idle() else { return self.read(read).await };
        match self.read_with(connection, read) {
            Err(error) => Err(self.diagnose(error).await),
            read => read,
        }
    }

    fn read_sync<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let connection = match self.take_idle() {
            Some(connection) => connection,
            None => self.open_or_take_idle()?,
        };
        self.read_with(connection, read)
    }

    /// Opens a connection. While the process has no free file descriptor, waits until it has one or another read returns
    /// its connection.
    fn open_or_take_idle(&self) -> Result<Connection, StoreError> {
        for attempt in 1..=MAX_FILE_WAITS {
            match open_reader(&self.path) {
                Err(_) if is_out_of_files() => std::thread::sleep(FILE_LIMIT_BACKOFF.delay_after(attempt)),
                opened => return opened,
            }
            if let Some(connection) = self.take_idle() {
                return Ok(connection);
            }
        }
        open_reader(&self.path)
    }

    fn read_with<T>(
        &self,
        connection: Connection,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let result = read(&connection).map_err(|error| store_error(&self.path, &error));
        self.idle_connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        result
    }

    fn take_idle(&self) -> Option<Connection> {
        // Connections are moved in and out as a whole, so a poisoned lock leaves the list consistent.
        self.idle_connections.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// Returns true if this process can open no further file. `SQLite` does not return the error of the system, so a file that
/// always exists is opened to get it.
fn is_out_of_files() -> bool {
    File::open("/dev/null").is_err_and(|error| is_file_limit_error(&error))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::ReaderPool;
    use crate::sqlite::{SqliteOptions, schema};

    #[tokio::test]
    async fn x02_connections_belong_to_the_pool_alone_once_a_read_returns() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("capstan.db");
        let _writer = schema::open_writer(&path, SqliteOptions::default()).unwrap();
        let pool = ReaderPool::new(path);
        for _ in 0..1_000 {
            pool.read(|connection| connection.query_row("SELECT 1", [], |row| row.get::<_, i64>(0))).await.unwrap();
            assert_eq!(Arc::strong_count(&pool.idle_connections), 1, "a thread would keep them open at exit");
        }
    }
}
