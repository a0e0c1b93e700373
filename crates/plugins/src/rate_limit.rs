//! Limit of messages per second, for logs.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Admits a number of messages in a second, and counts the others.
pub(crate) struct MessageLimiter {
    per_second: u32,
    state: Mutex<LimiterState>,
}

struct LimiterState {
    began: Instant,
    admitted: u32,
    dropped: u64,
}

/// Decision about a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MessageVerdict {
    /// Log it, after a note about those that were dropped before, if there are any.
    Log {
        dropped: u64,
    },
    Drop,
}

impl MessageLimiter {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second, state: Mutex::new(LimiterState { began: Instant::now(), admitted: 0, dropped: 0 }) }
    }

    pub(crate) fn admit(&self) -> MessageVerdict {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.began.elapsed() >= Duration::from_secs(1) {
            (state.began, state.admitted) = (Instant::now(), 0);
        }
        if state.admitted == self.per_second {
            state.dropped += 1;
            return MessageVerdict::Drop;
        }
        state.admitted += 1;
        MessageVerdict::Log { dropped: std::mem::take(&mut state.dropped) }
    }
}
