//! Delivery of a settled event: its messages, and the reply to its waiting caller.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_hooks::contracts::ChannelReply;
use capstan_protocol::{OutboundMessage, Timestamp};
use capstan_tape::{FactOutput, NewOutboxMessage, OutboxId, OutboxRecord, OutboxStatus};

/// A pending message of the outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    /// Id of the row.
    pub id: OutboxId,
    /// Message to send.
    pub message: OutboundMessage,
    /// Number of attempts to send it.
    pub attempts: u32,
    /// One of the attempts may have succeeded.
    pub may_have_been_sent: bool,
    /// Time since which it waits: when it was staged, or when the operator requested to send it again.
    pub waiting_since: Timestamp,
    /// The waiting caller of the message has disconnected: another caller on the same channel must not get it.
    pub is_caller_disconnected: bool,
}

impl OutboxRow {
    /// A message that was staged, with the id that its commit assigned; `None` if the output has no outbox id.
    pub fn from_staged(output: &FactOutput, outbound: NewOutboxMessage) -> Option<Self> {
        match output {
            FactOutput::Outbox(id) => Some(Self {
                id: *id,
                message: outbound.message,
                attempts: 0,
                may_have_been_sent: false,
                waiting_since: outbound.staged_at,
                is_caller_disconnected: false,
            }),
            _ => None,
        }
    }

    /// A message of a dead process, which may have been sending it.
    pub fn from_orphaned(record: OutboxRecord) -> Self {
        let attempts = match record.status {
            OutboxStatus::Waiting { attempts, .. } => attempts,
            OutboxStatus::Sent { .. }
            | OutboxStatus::Undelivered { .. }
            | OutboxStatus::Held { .. }
            | OutboxStatus::Acknowledged { .. } => 0,
        };
        Self {
            id: record.id,
            message: record.message,
            attempts,
            may_have_been_sent: true,
            waiting_since: record.staged_at,
            is_caller_disconnected: false,
        }
    }

    /// A message that the operator requested to send again at `requested_at`.
    pub(super) fn from_resend_request(record: OutboxRecord, requested_at: Timestamp) -> Self {
        let may_have_been_sent = matches!(record.status, OutboxStatus::Waiting { may_have_been_sent: true, .. });
        Self { may_have_been_sent, waiting_since: requested_at, ..Self::from_orphaned(record) }
    }

    /// A message that is returned to a caller that repeats the event: no caller received it, or a dead process owned it and
    /// may have delivered it.
    pub fn from_returned(record: OutboxRecord) -> Self {
        let may_have_been_sent = matches!(record.status, OutboxStatus::Waiting { .. });
        Self { may_have_been_sent, ..Self::from_orphaned(record) }
    }
}

/// Request to deliver everything about a settled event.
pub struct EventDelivery {
    /// The reply to a caller that waits on the event's channel. It contains the messages that need no delivery; those
    /// of the rows are added.
    pub reply: ChannelReply,
    /// Messages to send.
    pub rows: Vec<OutboxRow>,
    /// The waiting caller has disconnected.
    pub is_caller_disconnected: bool,
    /// Receipt for the local caller.
    pub receipt: LocalCallerReceipt,
}

/// Reports delivery errors to the local caller of an event when the last clone is dropped: by then the delivery of every
/// message was attempted.
#[derive(Clone)]
pub struct LocalCallerReceipt(Arc<PendingReceipt>);

/// Receives the reasons of failed deliveries.
type ReceiptCallback = Box<dyn FnOnce(Vec<String>) + Send>;

struct PendingReceipt(Mutex<Option<(ReceiptCallback, Vec<String>)>>);

impl LocalCallerReceipt {
    /// A receipt with a callback.
    pub fn new(callback: impl FnOnce(Vec<String>) + Send + 'static) -> Self {
        Self(Arc::new(PendingReceipt(Mutex::new(Some((Box::new(callback), Vec::new()))))))
    }

    /// A receipt without a local caller.
    pub fn none() -> Self {
        Self(Arc::new(PendingReceipt(Mutex::new(None))))
    }

    /// Adds a reason why a message has not been delivered so far.
    pub fn add_delivery_error(&self, reason: &str) {
        if let Some((_, errors)) = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            errors.push(reason.to_owned());
        }
    }
}

impl Drop for PendingReceipt {
    fn drop(&mut self) {
        if let Some((callback, errors)) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            callback(errors);
        }
    }
}
