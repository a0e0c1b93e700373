//! Whole lines to a stream, by one writer.

use std::future::Future;
use std::io::{self, Write};
use std::thread;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// How many lines may wait to be written. Whoever prints one more waits.
const WAITING: usize = 256;
/// From how many bytes on no further line is added to those that are written at once.
const AT_ONCE: usize = 64 * 1024;

/// Nobody reads what is printed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// Where lines are printed. Cheap to clone; the writer ends when the last clone is gone.
#[derive(Clone)]
pub(super) struct Output {
    queue: mpsc::Sender<Printed>,
    gone: CancellationToken,
}

/// A line on its way, and who waits for it to be written.
struct Printed {
    line: Vec<u8>,
    written: Option<oneshot::Sender<()>>,
}

/// How the writer ended, once it has.
pub(super) type Written = std::pin::Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

impl Output {
    /// Writes to a stream on a thread of its own, which nobody joins: it may wait for a reader that never reads.
    pub(super) fn open(stream: Box<dyn Write + Send>) -> (Self, Written) {
        let (queue, lines) = mpsc::channel(WAITING);
        let gone = CancellationToken::new();
        let (ended, end) = oneshot::channel();
        let writer_gone = gone.clone().drop_guard();
        let writing = move || {
            let written = write(stream, lines);
            drop(writer_gone);
            // Whoever waits for the end may have given up.
            let _unheard = ended.send(written);
        };
        // Were there no thread, its guard would be dropped with it: everybody is told that nobody reads.
        let _detached = thread::Builder::new().name("stdio-write".to_owned()).spawn(writing);
        let end = async { end.await.unwrap_or_else(|_| Err(io::Error::other("its writer could not run"))) };
        (Self { queue, gone }, Box::pin(end))
    }

    /// Prints a line, to be written in its turn.
    pub(super) async fn print(&self, line: &impl Serialize) -> Result<(), Gone> {
        self.queue.send(Printed { line: in_bytes(line), written: None }).await.map_err(|_| Gone)
    }

    /// Prints a line and waits until it is written.
    pub(super) async fn print_now(&self, line: &impl Serialize) -> Result<(), Gone> {
        let (written, done) = oneshot::channel();
        let printed = Printed { line: in_bytes(line), written: Some(written) };
        self.queue.send(printed).await.map_err(|_| Gone)?;
        done.await.map_err(|_| Gone)
    }

    /// Whether another line could be printed at once.
    pub(super) fn has_room(&self) -> bool {
        self.queue.capacity() > 0
    }

    /// Waits until another line could be printed at once.
    pub(super) async fn room(&self) {
        // An error means that nobody reads any more, which `gone` tells.
        let _room = self.queue.reserve().await;
    }

    /// Waits until nobody reads any more.
    pub(super) async fn gone(&self) {
        self.gone.cancelled().await;
    }
}

/// A value in one line: JSON has no line ends outside of what is escaped.
fn in_bytes(line: &impl Serialize) -> Vec<u8> {
    // The types of the wire are plain structs with text keys, which can be written.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Writes lines as they come. What has come meanwhile is written at once, so that a reader who is slower than the turns
/// is woken once for many lines.
fn write(mut stream: Box<dyn Write + Send>, mut lines: mpsc::Receiver<Printed>) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut waiting = Vec::new();
    while let Some(first) = lines.blocking_recv() {
        let mut next = Some(first);
        while let Some(Printed { line, written }) = next.take() {
            bytes.extend_from_slice(&line);
            waiting.extend(written);
            if bytes.len() < AT_ONCE {
                next = lines.try_recv().ok();
            }
        }
        stream.write_all(&bytes)?;
        stream.flush()?;
        // A long line is no reason to keep its room for ever.
        bytes.clear();
        bytes.shrink_to(AT_ONCE);
        for written in waiting.drain(..) {
            // Whoever waited may have run out of time.
            let _unheard = written.send(());
        }
    }
    Ok(())
}
