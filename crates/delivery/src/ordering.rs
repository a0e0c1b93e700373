//! Messages to one chat keep their order over all processes of a home: one goes out when every earlier one has.

use std::time::Duration;

use capstan_protocol::RetryBackoff;
use capstan_tape::{CommitDurability, OutboxId, OutboxRecord, OutboxStatus, StoreError};

use super::event_delivery::{CallerReceipt, OutboxRow};
use super::outbox::Outbox;

/// Delay between polls for earlier messages to go out.
const ORDERING_POLL_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_millis(20), max_delay: Duration::from_secs(1) };
/// How long whoever waits in this process is made to wait for the messages of others.
const ORDERING_WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// How many earlier messages are read at once. The first of them that counts is enough.
const EARLIER_MESSAGES_PAGE_SIZE: usize = 16;

/// Why whoever waits in this process was not made to wait longer.
pub(crate) const BEHIND_OTHERS_REASON: &str = "an earlier message to this chat is still to be sent by another process";

/// How long a chat has waited for the messages of other processes.
#[derive(Debug, Default)]
pub(crate) struct OrderingWait {
    total_wait: Duration,
    polls: u32,
}

impl OrderingWait {
    /// How long to wait before looking again.
    pub(crate) fn next_poll_delay(&mut self) -> Duration {
        self.polls = self.polls.saturating_add(1);
        let delay = ORDERING_POLL_BACKOFF.base_delay(self.polls);
        self.total_wait += delay;
        delay
    }

    /// Whether that takes long.
    pub(crate) fn is_overdue(&self) -> bool {
        self.total_wait > ORDERING_WAIT_TIMEOUT
    }
}

impl Outbox {
    /// Records the fates of messages, as often as it takes until the host gives up: other processes wait for it. Whoever
    /// waits in this one does not.
    pub(super) async fn record_deliveries_with_retry(
        &self,
        fates: Vec<(OutboxRow, OutboxStatus)>,
        mut receipt: Option<CallerReceipt>,
    ) {
        let mut look = OrderingWait::default();
        loop {
            match self.record_deliveries(fates.clone(), CommitDurability::Durable).await {
                Err(error) if error.is_transient() => drop(receipt.take()),
                _ => return,
            }
            tokio::select! {
                () = tokio::time::sleep(look.next_poll_delay()) => {}
                () = self.options.abort_token.cancelled() => return,
            }
        }
    }

    /// Whether a message has to wait for an earlier one to the same chat that another process has to send. What a dead one
    /// left is taken over here where it may be, and is then sent first.
    ///
    /// Rows are numbered in the order of their commits, so no earlier one can come up later. Those of this process are
    /// in its own queue, or about to be: for these it is not waited long. Another workspace may have another account on a
    /// channel of the same name, and what a dead process left may be for a channel that does not listen here, which
    /// nobody may ever send: neither is waited for.
    pub(super) async fn has_earlier_messages(&self, row: &OutboxRow, ordering: &OrderingWait) -> bool {
        let channel = self.channels.get(&row.message.channel);
        if channel.is_none_or(|channel| channel.capabilities().has_waiting_callers) {
            return false;
        }
        match self.find_earlier_messages(row, ordering).await {
            Ok(is_behind) => is_behind,
            Err(error) => {
                tracing::warn!(%error, "which messages go before another could not be told");
                true
            }
        }
    }

    async fn find_earlier_messages(&self, row: &OutboxRow, ordering: &OrderingWait) -> Result<bool, StoreError> {
        let me = self.options.owner.name();
        let mut after = OutboxId(0);
        loop {
            let page = self
                .tapes
                .store()
                .pending_outbound_before(row.id, &row.message, after, EARLIER_MESSAGES_PAGE_SIZE)
                .await?;
            let Some(last) = page.last().map(|other| other.id) else { return Ok(false) };
            for other in page {
                let is_ours = other.owner.as_deref() == Some(me);
                if is_ours && ordering.is_overdue() || !self.is_workspace_outbound(&other).await? {
                    continue;
                }
                if self.options.owner.is_orphaned(other.owner.as_deref()) {
                    if !self.channels.can_deliver_orphaned(&other.message.channel) {
                        continue;
                    }
                    self.adopt_orphaned_messages().await?;
                }
                return Ok(true);
            }
            after = last;
        }
    }

    /// Whether a message answers an event of this workspace, or of none that is known.
    pub(super) async fn is_workspace_outbound(&self, row: &OutboxRecord) -> Result<bool, StoreError> {
        let tape = match self.tapes.store().inbox_record(&row.event).await? {
            Some(event) => self.tapes.record(&event.tape).await?,
            None => None,
        };
        Ok(tape.is_none_or(|tape| tape.workspace.as_ref() == Some(&self.options.workspace_id)))
    }
}
