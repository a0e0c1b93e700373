//! Orphaned messages of dead processes, adopted by a process that may deliver them.

use capstan_tape::{Batch, Fact, OutboxStatus, StoreError};

use super::event_delivery::OutboxRow;
use super::held_messages::{RESEND_OWNER, hold_message};
use super::outbox::{CALLER_DISCONNECTED_REASON, Outbox};

impl Outbox {
    /// Adopts messages that a dead process owned; their fate is unknown. Messages of waiting callers are marked as
    /// undelivered.
    pub async fn adopt_orphaned_messages(&self) -> Result<(), StoreError> {
        let store = self.tapes.store();
        let owner_name = self.options.owners.own_name();
        let mut records = store.pending_outbound();
        while let Some(record) = records.next().await? {
            let channel = &record.message.channel;
            let has_waiting_caller = self.channels.has_waiting_caller(channel);
            if !self.options.owners.has_orphans_of(record.owner.as_deref())
                || !self.channels.can_deliver_orphaned(channel)
            {
                continue;
            }
            // Another workspace may have another account on a channel of the same name.
            if !self.is_workspace_outbound(&record).await? {
                continue;
            }
            let mut batch = Batch::new();
            let from = record.owner.clone();
            batch.push(Fact::AdoptOutbound { id: record.id, from: from.clone(), owner: owner_name.to_owned() });
            let row = if record.owner.as_deref() == Some(RESEND_OWNER) {
                OutboxRow::from_resend_request(record, self.options.stale_policy.clock.now())
            } else {
                OutboxRow::from_orphaned(record)
            };
            let hold_reason = self.options.stale_policy.hold_reason(&row, from.as_deref());
            let is_held = !has_waiting_caller && hold_reason.is_some();
            let status = if has_waiting_caller {
                OutboxStatus::Undelivered { reason: CALLER_DISCONNECTED_REASON.to_owned() }
            } else if let Some(reason) = hold_reason {
                hold_message(&row, reason)
            } else {
                let (attempts, may_have_been_sent) = (row.attempts, row.may_have_been_sent);
                OutboxStatus::Waiting { attempts, may_have_been_sent, reason: None }
            };
            batch.push(Fact::RecordDelivery { id: row.id, status });
            match store.commit(batch).await {
                Ok(_) if has_waiting_caller || is_held => {}
                // At once: if a later adoption fails, no other process would send this message.
                Ok(_) => self.enqueue_orphaned(row),
                // Another process was faster.
                Err(StoreError::OutboxConflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
