//! Messages that waited too long, or were pending in a restored copy: held for the operator, who sends them again or
//! drops them.
//!
//! # Design
//!
//! A message that has waited longer than `stale_after` is not sent: after a long outage the users would get a burst of
//! outdated messages. Its row keeps the message with the status `held`, so it does not delay later messages to the chat.
//!
//! `capstan outbox resend` writes a request: the row becomes pending again and belongs to [`RESEND_OWNER`], which is no
//! process. A host that serves the channel adopts the row like that of a dead process. The revision of the namespace
//! [`REQUEST_NAMESPACE`] changes with every request: a running host notices it without a scan of the outbox, and two
//! operators cannot decide about the same message.

use std::time::Duration;

use capstan_protocol::{Clock, Timestamp};
use capstan_tape::{
    Batch, BatchPrecondition, Fact, KeyValueRecord, OutboxRecord, OutboxStatus, RESTORED_OWNER, Store, StoreError,
};

use super::event_delivery::OutboxRow;

/// Owner of messages that the operator requested to send again. The name of no process.
pub(super) const RESEND_OWNER: &str = "outbox-resend";

/// Namespace whose revision changes with every request of an operator.
const REQUEST_NAMESPACE: &str = "outbox-requests";

/// Key of the newest request.
const REQUEST_KEY: &str = "newest";

/// Reason of a held message that never failed to be sent.
pub(super) const HELD_REASON: &str = "it waited too long";

/// Reason of a held message that was pending in a restored copy.
const RESTORED_REASON: &str = "it may have been sent after the backup that was restored";

/// Revision of the requests of operators. A request is based on the rows that were read after it.
pub async fn request_revision(store: &dyn Store) -> Result<u64, StoreError> {
    Ok(store.namespace(REQUEST_NAMESPACE).await?.map_or(0, |namespace| namespace.revision))
}

/// Batch that requests to send a held or undelivered message again. Fails with
/// [`NamespaceChanged`](StoreError::NamespaceChanged) if another request was written since `revision`.
pub fn resend_request(row: &OutboxRecord, revision: u64, now: Timestamp) -> Batch {
    let may_have_been_sent = match &row.status {
        OutboxStatus::Waiting { may_have_been_sent, .. } | OutboxStatus::Held { may_have_been_sent, .. } => {
            *may_have_been_sent
        }
        // The row does not say whether an attempt before the rejection may have succeeded.
        OutboxStatus::Undelivered { .. } => true,
        OutboxStatus::Sent { .. } | OutboxStatus::Acknowledged { .. } => false,
    };
    let mut batch = request_batch(row, revision, now);
    let status = OutboxStatus::Waiting { attempts: 0, may_have_been_sent, reason: None };
    batch.push(Fact::RecordDelivery { id: row.id, status });
    batch.push(Fact::AdoptOutbound { id: row.id, from: row.owner.clone(), owner: RESEND_OWNER.to_owned() });
    batch
}

/// Batch that drops a held or undelivered message. Fails like [`resend_request`].
pub fn drop_request(row: &OutboxRecord, reason: String, revision: u64, now: Timestamp) -> Batch {
    let mut batch = request_batch(row, revision, now);
    batch.push(Fact::RecordDelivery { id: row.id, status: OutboxStatus::Acknowledged { reason } });
    batch
}

/// Batch that changes the revision of the requests.
fn request_batch(row: &OutboxRecord, revision: u64, now: Timestamp) -> Batch {
    let mut batch = Batch::new();
    let namespace = REQUEST_NAMESPACE.to_owned();
    batch.preconditions.push(BatchPrecondition::NamespaceRevision { namespace: namespace.clone(), revision });
    let value = row.id.0.into();
    batch.push(Fact::PutKeyValue(KeyValueRecord {
        space: namespace,
        key: REQUEST_KEY.to_owned(),
        value,
        at: now,
        by: None,
    }));
    batch
}

/// Decides which pending messages are held for the operator.
#[derive(Debug, Clone)]
pub struct StalePolicy {
    /// Age from which a pending message is held; `None`: messages are never held.
    pub stale_after: Option<Duration>,
    /// Clock of the host.
    pub clock: Clock,
}

impl StalePolicy {
    /// Reason to hold an orphaned message for the operator instead of sending it, if there is one.
    pub(super) fn hold_reason(&self, row: &OutboxRow, owner: Option<&str>) -> Option<&'static str> {
        if owner == Some(RESTORED_OWNER) {
            return Some(RESTORED_REASON);
        }
        self.is_stale(row).then_some(HELD_REASON)
    }

    /// Returns true if a pending message has waited too long to be sent.
    pub(super) fn is_stale(&self, row: &OutboxRow) -> bool {
        let age = self.clock.now().as_millis().saturating_sub(row.waiting_since.as_millis());
        let age = Duration::from_millis(u64::try_from(age).unwrap_or(0));
        self.stale_after.is_some_and(|stale_after| age > stale_after)
    }
}

/// Reports that a message is held, and returns its status.
pub(super) fn hold_message(row: &OutboxRow, reason: &str) -> OutboxStatus {
    let (channel, chat) = (&row.message.channel, &row.message.chat_id);
    tracing::warn!(id = row.id.0, %channel, %chat, reason, "holding a message; see `capstan outbox list`");
    OutboxStatus::Held { reason: reason.to_owned(), may_have_been_sent: row.may_have_been_sent }
}
