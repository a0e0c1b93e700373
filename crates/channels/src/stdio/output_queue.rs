//! Bounded queue of output lines with a single writer thread.

use std::future::Future;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Maximum number of queued lines. Further lines wait for capacity.
const MAX_QUEUED_LINES: usize = 256;
/// Maximum size of several lines written together: `PIPE_BUF` of Linux, which a pipe accepts whole or not at all, so that
/// no line of a failed write has been delivered. A longer line is written alone.
const MAX_BATCH_BYTES: usize = 4096;

/// Maximum size of a single write; only a line longer than a batch reaches it. Each completed write counts as progress of
/// the reader.
const WRITE_CHUNK_BYTES: usize = 16 * 1024;

/// Reason why the output is closed, or counts as closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputClosed {
    /// The program that reads it has closed it.
    ByPeer,
    /// The output is open, but was not read for too long.
    Stalled,
}

/// Handle for printing lines. Cheap to clone; the writer ends when the last clone is dropped.
#[derive(Clone)]
pub(super) struct OutputQueue {
    queue: mpsc::Sender<QueuedLine>,
    peer: OutputPeer,
}

/// Program at the other end of the output. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct OutputPeer(Arc<PeerProgress>);

/// Progress of the program that reads the output.
#[derive(Default)]
struct PeerProgress {
    /// Cancelled when the output is closed, or counts as closed.
    closed: CancellationToken,
    /// True if the reason is a stall.
    is_stalled: AtomicBool,
    /// Number of chunks that the output has accepted.
    chunks_written: AtomicU64,
}

/// Line in the queue, and the task waiting for it to be written.
struct QueuedLine {
    line: Vec<u8>,
    written_ack: Option<oneshot::Sender<()>>,
}

impl QueuedLine {
    /// True if the waiting task gave up and treats the line as undelivered.
    fn is_abandoned(&self) -> bool {
        self.written_ack.as_ref().is_some_and(oneshot::Sender::is_closed)
    }
}

/// Future of the writer's result; completes when the writer has ended.
pub(super) type WriterExit = std::pin::Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

impl OutputQueue {
    /// Writes to a stream on a dedicated thread. It is not joined, since it may block on a reader that never reads.
    pub(super) fn open(stream: Box<dyn Write + Send>) -> (Self, WriterExit) {
        let (queue, lines) = mpsc::channel(MAX_QUEUED_LINES);
        let peer = OutputPeer::default();
        let (exit_sender, exit) = oneshot::channel();
        let closed_guard = peer.0.closed.clone().drop_guard();
        let progress = peer.clone();
        let run_writer = move || {
            let result = write_lines(stream, lines, &progress.0);
            // Sent before the guard is dropped, so that the reason is known when the end is noticed. The receiver may
            // have given up.
            let _receiver_gone = exit_sender.send(result);
            drop(closed_guard);
        };
        // If the thread cannot be spawned, its guard is dropped, which reports the reader as closed.
        let _thread = thread::Builder::new().name("stdio-write".to_owned()).spawn(run_writer);
        let exit = async { exit.await.unwrap_or_else(|_| Err(io::Error::other("cannot start the writer thread"))) };
        (Self { queue, peer }, Box::pin(exit))
    }

    /// Queues a line.
    pub(super) async fn print(&self, line: &impl Serialize) -> Result<(), OutputClosed> {
        self.queue
            .send(QueuedLine { line: encode_line(line), written_ack: None })
            .await
            .map_err(|_| self.peer.close_reason())
    }

    /// Queues a line and waits until it is written. Dropping the future withdraws the line, unless its write has started.
    pub(super) async fn print_and_wait(&self, line: &impl Serialize) -> Result<(), OutputClosed> {
        let (ack, written) = oneshot::channel();
        let queued = QueuedLine { line: encode_line(line), written_ack: Some(ack) };
        self.queue.send(queued).await.map_err(|_| self.peer.close_reason())?;
        written.await.map_err(|_| self.peer.close_reason())
    }

    /// True if a line can be queued without waiting.
    pub(super) fn has_capacity(&self) -> bool {
        self.queue.capacity() > 0
    }

    /// Waits until a line can be queued without waiting.
    pub(super) async fn wait_for_capacity(&self) {
        // An error means that the reader is closed, which `wait_until_closed` reports.
        let _permit = self.queue.reserve().await;
    }

    /// Program that reads the output.
    pub(super) fn peer(&self) -> &OutputPeer {
        &self.peer
    }
}

impl OutputPeer {
    /// Waits until the output is closed, or counts as closed.
    pub(super) async fn wait_until_closed(&self) -> OutputClosed {
        self.0.closed.cancelled().await;
        self.close_reason()
    }

    /// Waits until the reader has made no progress for `timeout`, then marks it as closed. Call it only while output is
    /// queued.
    pub(super) async fn wait_until_stalled(&self, timeout: Duration) -> OutputClosed {
        loop {
            let before = self.0.chunks_written.load(Ordering::SeqCst);
            tokio::time::sleep(timeout).await;
            if self.0.chunks_written.load(Ordering::SeqCst) == before {
                self.0.is_stalled.store(true, Ordering::SeqCst);
                self.0.closed.cancel();
                return OutputClosed::Stalled;
            }
        }
    }

    fn close_reason(&self) -> OutputClosed {
        if self.0.is_stalled.load(Ordering::SeqCst) { OutputClosed::Stalled } else { OutputClosed::ByPeer }
    }
}

/// Encodes a value as one line: JSON contains no raw line ends.
fn encode_line(line: &impl Serialize) -> Vec<u8> {
    // The line types are plain structs with string keys, which always serialize.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Writes queued lines. Lines that queued up meanwhile are written together, so that a slow reader is woken once for many
/// lines.
fn write_lines(
    mut stream: Box<dyn Write + Send>,
    mut lines: mpsc::Receiver<QueuedLine>,
    progress: &PeerProgress,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut acks = Vec::new();
    let mut next = lines.blocking_recv();
    while let Some(first) = next.take() {
        if progress.closed.is_cancelled() {
            break;
        }
        let mut candidate = Some(first);
        while let Some(queued) = candidate.take() {
            if !bytes.is_empty() && bytes.len() + queued.line.len() > MAX_BATCH_BYTES {
                next = Some(queued);
                break;
            }
            if !queued.is_abandoned() {
                bytes.extend_from_slice(&queued.line);
                acks.extend(queued.written_ack);
            }
            candidate = lines.try_recv().ok();
        }
        for chunk in bytes.chunks(WRITE_CHUNK_BYTES) {
            stream.write_all(chunk)?;
            progress.chunks_written.fetch_add(1, Ordering::SeqCst);
        }
        stream.flush()?;
        // Releases the memory of a long line.
        bytes.clear();
        bytes.shrink_to(MAX_BATCH_BYTES);
        for ack in acks.drain(..) {
            // The waiting task may have timed out.
            let _receiver_gone = ack.send(());
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

    /// Writer that announces each write, waits for a permit, and passes the bytes on.
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
    async fn x03_abandoned_line_is_not_printed() {
        let ((permit, write_permits), (written_lines, lines)) = (mpsc::channel(), mpsc::channel());
        let (write_started, started) = mpsc::channel();
        let writer = SteppedWriter { write_started, write_permits, written_lines };
        let (output, exit) = OutputQueue::open(Box::new(writer));
        output.print(&1).await.unwrap();
        started.recv().unwrap();
        {
            let mut abandoned = Box::pin(output.print_and_wait(&2));
            assert!(futures::poll!(&mut abandoned).is_pending(), "the first line is not written yet");
        }
        output.print(&3).await.unwrap();
        for _ in 0..3 {
            permit.send(()).unwrap();
        }
        drop(output);
        exit.await.unwrap();
        assert_eq!(lines.iter().collect::<Vec<_>>(), ["1", "3"]);
    }
}
