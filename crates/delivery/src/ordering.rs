//! Order of messages to one chat across all processes of the workspace: a message is sent after all earlier ones.

use capstan_tape::{OutboxId, OutboxRecord, StoreError};

use super::event_delivery::OutboxRow;
use super::ordering_wait::OrderingWait;
use super::outbox::Outbox;

/// Page size for earlier messages. Usually the first page decides.
const EARLIER_MESSAGES_PAGE_SIZE: usize = 16;

impl Outbox {
    /// Returns true if another process has to send an earlier message to the same chat. Orphaned messages are adopted
    /// here if this process may deliver them, and are then sent first.
    ///
    /// Rows are numbered in the order of their commits, so an earlier one cannot appear later. Rows of this process are
    /// in its own queue or about to be, so the wait for them is short. Two kinds of messages are not waited for: those
    /// of another workspace, which may have another account on a channel of the same name, and orphaned messages of a
    /// channel that does not listen here, which may never be sent.
    pub(super) async fn has_earlier_messages(&self, row: &OutboxRow, ordering: &OrderingWait) -> bool {
        let channel = self.channels.get(&row.message.channel);
        if channel.is_none_or(|channel| channel.capabilities().has_waiting_callers) {
            return false;
        }
        match self.find_earlier_messages(row, ordering).await {
            Ok(has_earlier) => has_earlier,
            Err(error) => {
                tracing::warn!(%error, "cannot check for earlier messages to the same chat");
                true
            }
        }
    }

    async fn find_earlier_messages(&self, row: &OutboxRow, ordering: &OrderingWait) -> Result<bool, StoreError> {
        let owner_name = self.options.owners.own_name();
        let mut after = OutboxId(0);
        loop {
            let page = self
                .tapes
                .store()
                .pending_outbound_before(row.id, &row.message, after, EARLIER_MESSAGES_PAGE_SIZE)
                .await?;
            let Some(last) = page.last().map(|other| other.id) else { return Ok(false) };
            for other in page {
                let is_ours = other.owner.as_deref() == Some(owner_name);
                if is_ours && ordering.is_overdue() || !self.is_workspace_outbound(&other).await? {
                    continue;
                }
                if self.options.owners.has_orphans_of(other.owner.as_deref()) {
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

    /// Returns true if a message replies to an event of this workspace, or of an unknown one.
    pub(super) async fn is_workspace_outbound(&self, row: &OutboxRecord) -> Result<bool, StoreError> {
        let tape = match self.tapes.store().inbox_record(&row.event).await? {
            Some(event) => self.tapes.record(&event.tape).await?,
            None => None,
        };
        Ok(tape.is_none_or(|tape| tape.workspace.as_ref() == Some(&self.options.workspace_id)))
    }
}
