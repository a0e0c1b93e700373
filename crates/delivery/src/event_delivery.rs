//! Delivery of an event that has ended: its messages, and the reply to the caller that waits for it.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_hooks::contracts::ChannelReply;
use capstan_protocol::OutboundMessage;
use capstan_tape::{FactOutput, NewOutbound, OutboxId, OutboxRecord, OutboxStatus};

/// A message that waits in the outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    /// Id of the row.
    pub id: OutboxId,
    /// Message to send.
    pub message: OutboundMessage,
    /// How often it was tried.
    pub attempts: u32,
    /// Whether one of those may have gone through.
    pub is_fate_unknown: bool,
    /// Whoever waited for it is gone: it is not for whoever waits on that channel now.
    pub is_caller_gone: bool,
}

impl OutboxRow {
    /// A message that was staged under this id.
    pub fn from_staged(assigned: &FactOutput, outbound: NewOutbound) -> Option<Self> {
        match assigned {
            FactOutput::Outbox(id) => {
                let message = outbound.message;
                Some(Self { id: *id, message, attempts: 0, is_fate_unknown: false, is_caller_gone: false })
            }
            _ => None,
        }
    }

    /// A message that a process left when it died: it may have been sending it.
    pub fn from_orphaned(record: OutboxRecord) -> Self {
        let attempts = match record.status {
            OutboxStatus::Waiting { attempts, .. } => attempts,
            OutboxStatus::Sent { .. } | OutboxStatus::Undelivered { .. } | OutboxStatus::Noted { .. } => 0,
        };
        Self { id: record.id, message: record.message, attempts, is_fate_unknown: true, is_caller_gone: false }
    }

    /// A message that a caller did not take, or that a process left which died: then it may have been taken.
    pub fn from_unclaimed(record: OutboxRecord) -> Self {
        let fate_unknown = matches!(record.status, OutboxStatus::Waiting { .. });
        Self { is_fate_unknown: fate_unknown, ..Self::from_orphaned(record) }
    }
}

/// Request to deliver everything about an event that has ended.
pub struct EventDelivery {
    /// The reply to a caller that waits on the event's channel. Its messages are those that need no delivery; the rows
    /// are added to them.
    pub reply: ChannelReply,
    /// Messages to send.
    pub rows: Vec<OutboxRow>,
    /// The caller behind the channel is gone.
    pub is_caller_gone: bool,
    /// Receipt for a caller inside this process.
    pub receipt: CallerReceipt,
}

/// Tells a caller inside this process, once everything of an event was tried, which messages could not be delivered: when
/// the last clone is dropped.
#[derive(Clone)]
pub struct CallerReceipt(Arc<PendingReceipt>);

/// Receives the reasons of failed deliveries.
type ReceiptCallback = Box<dyn FnOnce(Vec<String>) + Send>;

struct PendingReceipt(Mutex<Option<(ReceiptCallback, Vec<String>)>>);

impl CallerReceipt {
    /// A receipt that calls back.
    pub fn new(callback: impl FnOnce(Vec<String>) + Send + 'static) -> Self {
        Self(Arc::new(PendingReceipt(Mutex::new(Some((Box::new(callback), Vec::new()))))))
    }

    /// A receipt for no caller.
    pub fn none() -> Self {
        Self(Arc::new(PendingReceipt(Mutex::new(None))))
    }

    /// Records that a message could not be delivered.
    pub fn record_undelivered(&self, reason: &str) {
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
