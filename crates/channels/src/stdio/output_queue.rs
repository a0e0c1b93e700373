//! Whole lines to a stream, by one writer.

use std::future::Future;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// How many lines may wait to be written. Whoever prints one more waits.
const MAX_QUEUED_LINES: usize = 256;
/// How many bytes of several lines are written at once: as many as a pipe takes whole or not at all, so that no line goes
/// through whose fate is said to be another.
const MAX_BATCH_BYTES: usize = 4096;

/// How much is written at once, in bytes: whoever takes that is reading.
const WRITE_CHUNK_BYTES: usize = 16 * 1024;

/// Nobody reads what is printed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReaderGone {
    /// It was closed.
    Closed,
    /// It is open, but nobody took anything for too long.
    Stalled,
}

/// Where lines are printed. Cheap to clone; the writer ends when the last clone is gone.
#[derive(Clone)]
pub(super) struct OutputQueue {
    queue: mpsc::Sender<QueuedLine>,
    reader: OutputReader,
}

/// Whoever reads what is printed. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct OutputReader(Arc<ReaderProgress>);

/// What is known of how a reader takes what is written.
#[derive(Default)]
struct ReaderProgress {
    /// Nobody reads any more.
    gone: CancellationToken,
    /// That is because nobody took anything.
    is_stalled: AtomicBool,
    /// How many chunks were taken.
    chunks_written: AtomicU64,
}

/// A line on its way, and who waits for it to be written.
struct QueuedLine {
    line: Vec<u8>,
    written_ack: Option<oneshot::Sender<()>>,
}

impl QueuedLine {
    /// Whether whoever printed it has said that it was not.
    fn is_abandoned(&self) -> bool {
        self.written_ack.as_ref().is_some_and(oneshot::Sender::is_closed)
    }
}

/// How the writer ended, once it has.
pub(super) type WriterExit = std::pin::Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

impl OutputQueue {
    /// Writes to a stream on a thread of its own, which nobody joins: it may wait for a reader that never reads.
    pub(super) fn open(stream: Box<dyn Write + Send>) -> (Self, WriterExit) {
        let (queue, lines) = mpsc::channel(MAX_QUEUED_LINES);
        let reader = OutputReader::default();
        let (ended, end) = oneshot::channel();
        let writer_gone = reader.0.gone.clone().drop_guard();
        let taking = reader.clone();
        let writing = move || {
            let written = write_lines(stream, lines, &taking.0);
            // Whoever waits for the end may have given up. It is said before it shows, so that everybody knows why.
            let _unheard = ended.send(written);
            drop(writer_gone);
        };
        // Were there no thread, its guard would be dropped with it: everybody is told that nobody reads.
        let _detached = thread::Builder::new().name("stdio-write".to_owned()).spawn(writing);
        let end = async { end.await.unwrap_or_else(|_| Err(io::Error::other("its writer could not run"))) };
        (Self { queue, reader }, Box::pin(end))
    }

    /// Prints a line, to be written in its turn.
    pub(super) async fn print(&self, line: &impl Serialize) -> Result<(), ReaderGone> {
        self.queue
            .send(QueuedLine { line: encode_line(line), written_ack: None })
            .await
            .map_err(|_| self.reader.gone_reason())
    }

    /// Prints a line and waits until it is written. Whoever waits no longer has it not printed, unless that has begun.
    pub(super) async fn print_and_wait(&self, line: &impl Serialize) -> Result<(), ReaderGone> {
        let (written, done) = oneshot::channel();
        let printed = QueuedLine { line: encode_line(line), written_ack: Some(written) };
        self.queue.send(printed).await.map_err(|_| self.reader.gone_reason())?;
        done.await.map_err(|_| self.reader.gone_reason())
    }

    /// Whether another line could be printed at once.
    pub(super) fn has_capacity(&self) -> bool {
        self.queue.capacity() > 0
    }

    /// Waits until another line could be printed at once.
    pub(super) async fn wait_for_capacity(&self) {
        // An error means that nobody reads any more, which `gone` tells.
        let _room = self.queue.reserve().await;
    }

    /// Whoever reads what is printed.
    pub(super) fn reader(&self) -> &OutputReader {
        &self.reader
    }
}

impl OutputReader {
    /// Waits until nobody reads any more.
    pub(super) async fn wait_gone(&self) -> ReaderGone {
        self.0.gone.cancelled().await;
        self.gone_reason()
    }

    /// Waits until nobody has taken anything for this long, while there was something to take, as whoever calls this
    /// has. From then on nobody is waited for.
    pub(super) async fn wait_stalled(&self, long: Duration) -> ReaderGone {
        loop {
            let before = self.0.chunks_written.load(Ordering::SeqCst);
            tokio::time::sleep(long).await;
            if self.0.chunks_written.load(Ordering::SeqCst) == before {
                self.0.is_stalled.store(true, Ordering::SeqCst);
                self.0.gone.cancel();
                return ReaderGone::Stalled;
            }
        }
    }

    fn gone_reason(&self) -> ReaderGone {
        if self.0.is_stalled.load(Ordering::SeqCst) { ReaderGone::Stalled } else { ReaderGone::Closed }
    }
}

/// A value in one line: JSON has no line ends outside of what is escaped.
fn encode_line(line: &impl Serialize) -> Vec<u8> {
    // The types of the wire are plain structs with text keys, which can be written.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Writes lines as they come. What has come meanwhile is written at once, so that a reader who is slower than the turns
/// is woken once for many lines.
fn write_lines(
    mut stream: Box<dyn Write + Send>,
    mut lines: mpsc::Receiver<QueuedLine>,
    taking: &ReaderProgress,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut waiting = Vec::new();
    let mut next = lines.blocking_recv();
    while let Some(first) = next.take() {
        if taking.gone.is_cancelled() {
            break;
        }
        let mut candidate = Some(first);
        while let Some(printed) = candidate.take() {
            if !bytes.is_empty() && bytes.len() + printed.line.len() > MAX_BATCH_BYTES {
                next = Some(printed);
                break;
            }
            if !printed.is_abandoned() {
                bytes.extend_from_slice(&printed.line);
                waiting.extend(printed.written_ack);
            }
            candidate = lines.try_recv().ok();
        }
        for chunk in bytes.chunks(WRITE_CHUNK_BYTES) {
            stream.write_all(chunk)?;
            taking.chunks_written.fetch_add(1, Ordering::SeqCst);
        }
        stream.flush()?;
        // A long line is no reason to keep its room for ever.
        bytes.clear();
        bytes.shrink_to(MAX_BATCH_BYTES);
        for written in waiting.drain(..) {
            // Whoever waited may have run out of time.
            let _unheard = written.send(());
        }
        next = next.or_else(|| lines.blocking_recv());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::mpsc;

    use super::OutputQueue;

    /// A stream that says when it is written to, takes that when it is let, and hands it on.
    struct SteppedWriter {
        write_started: mpsc::Sender<()>,
        write_permits: mpsc::Receiver<()>,
        written_lines: mpsc::Sender<String>,
    }

    impl Write for SteppedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_started.send(()).map_err(io::Error::other)?;
            self.write_permits.recv().map_err(io::Error::other)?;
            self.written_lines.send(String::from_utf8_lossy(bytes).trim().to_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn x03_a_line_that_nobody_waits_for_any_more_is_not_printed() {
        let ((let_one, lets), (takes, lines)) = (mpsc::channel(), mpsc::channel());
        let (begins, begun) = mpsc::channel();
        let (output, written) = OutputQueue::open(Box::new(SteppedWriter {
            write_started: begins,
            write_permits: lets,
            written_lines: takes,
        }));
        output.print(&1).await.unwrap();
        begun.recv().unwrap();
        {
            let mut given_up = Box::pin(output.print_and_wait(&2));
            assert!(futures::poll!(&mut given_up).is_pending(), "the first is not taken");
        }
        output.print(&3).await.unwrap();
        for _ in 0..3 {
            let_one.send(()).unwrap();
        }
        drop(output);
        written.await.unwrap();
        assert_eq!(lines.iter().collect::<Vec<_>>(), ["1", "3"]);
    }
}
