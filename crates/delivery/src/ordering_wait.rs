//! Wait of a chat for messages of other processes.

use std::time::Duration;

use capstan_protocol::RetryBackoff;

/// Delay between polls for earlier messages.
const ORDERING_POLL_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_millis(20), max_delay: Duration::from_secs(1) };
/// Time that a local caller waits for messages of other processes.
const ORDERING_WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason reported to a local caller when that time is over.
pub(crate) const BEHIND_OTHERS_REASON: &str = "an earlier message to this chat is still to be sent by another process";

/// Time that a chat has waited for messages of other processes.
#[derive(Debug, Default)]
pub(crate) struct OrderingWait {
    total_wait: Duration,
    polls: u32,
}

impl OrderingWait {
    /// The delay before the next poll.
    pub(crate) fn next_poll_delay(&mut self) -> Duration {
        self.polls = self.polls.saturating_add(1);
        let delay = ORDERING_POLL_BACKOFF.base_delay(self.polls);
        self.total_wait += delay;
        delay
    }

    /// Returns true once a local caller should not wait any longer.
    pub(crate) fn is_overdue(&self) -> bool {
        self.total_wait > ORDERING_WAIT_TIMEOUT
    }
}
