//! Queue of lines to be written, bounded by their bytes.
//!
//! All lines leave in the order in which they entered. Requests and items wait for room; answers, credit and
//! cancellations enter at once, because waiting for room would mean waiting for the reader of the other side, and
//! their number is bounded by what the other side has asked for. A side that lets too many of them pile up is stalled.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Unit of the room in the queue.
const ROOM_UNIT_BYTES: usize = 4096;
/// Maximum number of lines that entered without waiting.
const MAX_PRIORITY_LINES: usize = 16 * 1024;
/// Maximum size of all lines that entered without waiting.
const MAX_PRIORITY_BYTES: usize = 64 << 20;

/// Line with the room that it takes; none for a line that entered at once.
pub(crate) struct OutgoingLine {
    pub(crate) bytes: Vec<u8>,
    room: Option<OwnedSemaphorePermit>,
}

pub(crate) struct OutgoingQueue {
    lines: Mutex<QueueState>,
    changed: Notify,
    room: Arc<Semaphore>,
    capacity: u32,
}

#[derive(Default)]
struct QueueState {
    lines: VecDeque<OutgoingLine>,
    priority_lines: usize,
    priority_bytes: usize,
    is_closed: bool,
}

/// A line could not enter: too many lines wait, or the queue is closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EnqueueError {
    Full,
    Closed,
}

impl OutgoingQueue {
    pub(crate) fn new(max_bytes: usize) -> Self {
        let capacity = u32::try_from(max_bytes.div_ceil(ROOM_UNIT_BYTES)).unwrap_or(u32::MAX).max(1);
        let room = Arc::new(Semaphore::new(capacity as usize));
        Self { lines: Mutex::default(), changed: Notify::new(), room, capacity }
    }

    /// Waits for room and adds a line. A line larger than the queue takes all of it.
    pub(crate) async fn push(&self, bytes: Vec<u8>) -> Result<(), EnqueueError> {
        let units = u32::try_from(bytes.len() / ROOM_UNIT_BYTES + 1).unwrap_or(u32::MAX).min(self.capacity);
        let room = Arc::clone(&self.room).acquire_many_owned(units).await.map_err(|_| EnqueueError::Closed)?;
        self.enqueue(OutgoingLine { bytes, room: Some(room) })
    }

    /// Adds a line at once.
    pub(crate) fn push_now(&self, bytes: Vec<u8>) -> Result<(), EnqueueError> {
        self.enqueue(OutgoingLine { bytes, room: None })
    }

    fn enqueue(&self, line: OutgoingLine) -> Result<(), EnqueueError> {
        let mut state = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return Err(EnqueueError::Closed);
        }
        if line.room.is_none() {
            if state.priority_lines == MAX_PRIORITY_LINES || state.priority_bytes >= MAX_PRIORITY_BYTES {
                return Err(EnqueueError::Full);
            }
            state.priority_lines += 1;
            state.priority_bytes += line.bytes.len();
        }
        state.lines.push_back(line);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Next lines to write, of `max_bytes` together unless the first one is longer. Their room is free again when they
    /// are dropped. `None` once the queue is closed and empty.
    pub(crate) async fn pop_batch(&self, max_bytes: usize) -> Option<Vec<OutgoingLine>> {
        loop {
            {
                let mut state = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
                let (mut batch, mut bytes) = (Vec::new(), 0);
                while let Some(next) = state.lines.front()
                    && (batch.is_empty() || bytes + next.bytes.len() <= max_bytes)
                    && let Some(line) = state.lines.pop_front()
                {
                    bytes += line.bytes.len();
                    if line.room.is_none() {
                        state.priority_lines -= 1;
                        state.priority_bytes -= line.bytes.len();
                    }
                    batch.push(line);
                }
                if !batch.is_empty() {
                    return Some(batch);
                }
                if state.is_closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Refuses further lines; those in the queue are still written.
    pub(crate) fn close(&self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.room.close();
        self.changed.notify_one();
    }
}
