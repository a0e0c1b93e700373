//! Baseline of SQLite itself: transactions of many writers, with one thread that shares each flush.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use crate::BenchError;

/// Row of about the size of a short message's entry.
const SAMPLE_ROW: &str =
    r#"{"role":"user","content":"a message of the usual length, as people write them to each other"}"#;

/// Measures the transactions per second of many writers, with a number of rows each.
pub(super) fn measure_transactions(writers: u32, rows: u32, duration: Duration) -> Result<f64, BenchError> {
    let folder = tempfile::tempdir()?;
    let connection = Connection::open(folder.path().join("raw.db"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch("CREATE TABLE rows (tape INTEGER, id INTEGER, text TEXT, PRIMARY KEY (tape, id))")?;
    let started_at = Instant::now();
    let (jobs, queue) = mpsc::sync_channel::<(u32, u32, mpsc::SyncSender<()>)>(1024);
    let count = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..writers)
            .map(|writer| {
                let jobs = jobs.clone();
                scope.spawn(move || {
                    let (reply, committed) = mpsc::sync_channel(1);
                    let mut count = 0_u32;
                    while started_at.elapsed() < duration {
                        count += 1;
                        let sent = jobs.send((writer, count, reply.clone())).is_ok();
                        if !sent || committed.recv().is_err() {
                            break;
                        }
                    }
                    count
                })
            })
            .collect();
        drop(jobs);
        let written = write_grouped(&connection, rows, &queue);
        let count: u32 = clients.into_iter().map(|client| client.join().unwrap_or_default()).sum();
        written.map(|()| count)
    })?;
    Ok(f64::from(count) / started_at.elapsed().as_secs_f64())
}

fn write_grouped(
    connection: &Connection,
    rows: u32,
    queue: &mpsc::Receiver<(u32, u32, mpsc::SyncSender<()>)>,
) -> rusqlite::Result<()> {
    while let Ok(first) = queue.recv() {
        let group: Vec<_> = std::iter::once(first).chain(queue.try_iter().take(255)).collect();
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for (tape, id, _) in &group {
            connection.prepare_cached("SAVEPOINT one")?.execute([])?;
            for row in 0..rows {
                let id = i64::from(*id) * i64::from(rows) + i64::from(row);
                connection
                    .prepare_cached("INSERT INTO rows VALUES (?1, ?2, ?3)")?
                    .execute(params![tape, id, SAMPLE_ROW])?;
            }
            connection.prepare_cached("RELEASE one")?.execute([])?;
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
        for (_, _, reply) in group {
            // A writer that has stopped does not wait for it.
            let _gone = reply.send(());
        }
    }
    Ok(())
}
