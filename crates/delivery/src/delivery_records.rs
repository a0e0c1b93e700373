//! Records of delivery results in the store.

use std::time::Duration;

use capstan_protocol::RetryBackoff;
use capstan_tape::{Batch, CommitDurability, Fact, OutboxStatus, StoreError};

use super::event_delivery::{CallerReceipt, OutboxRow};
use super::outbox::Outbox;

/// Backoff between attempts to record delivery results.
const RECORD_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_millis(20), max_delay: Duration::from_secs(1) };

impl Outbox {
    /// Records delivery results. If that fails the messages are still pending in the store, and may be sent again.
    pub async fn record_deliveries(
        &self,
        results: Vec<(OutboxRow, OutboxStatus)>,
        durability: CommitDurability,
    ) -> Result<(), StoreError> {
        if results.is_empty() {
            return Ok(());
        }
        let facts = results.into_iter().map(|(row, status)| Fact::RecordDelivery { id: row.id, status }).collect();
        let recorded = self.tapes.store().commit(Batch { durability, facts, ..Batch::new() }).await;
        if let Err(error) = &recorded {
            tracing::warn!(%error, "cannot record the delivery of a message");
        }
        recorded.map(drop)
    }

    /// Records delivery results, with retries until the host aborts: other processes wait for the records. A waiting
    /// caller of this process does not.
    pub(super) async fn record_deliveries_with_retry(
        &self,
        results: Vec<(OutboxRow, OutboxStatus)>,
        mut receipt: Option<CallerReceipt>,
    ) {
        let mut attempts: u32 = 0;
        loop {
            match self.record_deliveries(results.clone(), CommitDurability::Durable).await {
                Err(error) if error.is_transient() => drop(receipt.take()),
                _ => return,
            }
            attempts = attempts.saturating_add(1);
            tokio::select! {
                () = tokio::time::sleep(RECORD_BACKOFF.base_delay(attempts)) => {}
                () = self.options.abort_token.cancelled() => return,
            }
        }
    }
}
