//! Messages to be sent.

use async_trait::async_trait;
use capstan_protocol::{EventKey, OutboundMessage};

use super::RowPages;
use crate::{OutboxId, OutboxRecord, StoreError};

/// Messages to be sent, and their delivery status.
#[async_trait]
pub trait OutboxStore: Send + Sync + 'static {
    /// Pending messages with ids after `after`, ordered by id, at most `limit`.
    async fn pending_page(&self, after: OutboxId, limit: usize) -> Result<Vec<OutboxRecord>, StoreError>;

    /// All pending messages, ordered by id.
    fn pending_outbound(&self) -> RowPages<'_, OutboxRecord> {
        RowPages::new(move |after: Option<OutboxRecord>, limit| {
            Box::pin(async move { self.pending_page(after.map_or(OutboxId(0), |row| row.id), limit).await })
        })
    }

    /// Pending messages to the chat of `message` with `after < id < before`, ordered by id, at most `limit`.
    async fn pending_outbound_before(
        &self,
        before: OutboxId,
        message: &OutboundMessage,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError>;

    /// Messages of an event with ids after `after`, ordered by id, at most `limit`.
    async fn outbox_page(
        &self,
        event: &EventKey,
        after: OutboxId,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError>;

    /// All messages of an event, ordered by id.
    fn outbox_records(&self, event: &EventKey) -> RowPages<'_, OutboxRecord> {
        let event = event.clone();
        RowPages::new(move |after: Option<OutboxRecord>, limit| {
            let event = event.clone();
            Box::pin(async move { self.outbox_page(&event, after.map_or(OutboxId(0), |row| row.id), limit).await })
        })
    }
}
