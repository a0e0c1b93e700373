//! What goes out when an event has ended: its messages, and the word to whoever waits for it.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::ChannelReply;
use capstan_protocol::{ChannelName, OutboundMessage, Outcome, RunId};
use capstan_tape::{FactOutput, NewOutbound, OutboxId, OutboxRecord, OutboxStatus};

use crate::ServedEvent;
use crate::sessions::accepted_event::{AcceptedEvent, WaitingCaller};

/// A message that waits in the outbox.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutboxRow {
    pub(crate) id: OutboxId,
    pub(crate) message: OutboundMessage,
    /// How often it was tried.
    pub(crate) attempts: u32,
    /// Whether one of those may have gone through.
    pub(crate) is_fate_unknown: bool,
    /// Whoever waited for it is gone: it is not for whoever waits on that channel now.
    pub(crate) is_caller_gone: bool,
}

impl OutboxRow {
    /// A message that was staged under this id.
    pub(crate) fn from_staged(assigned: &FactOutput, outbound: NewOutbound) -> Option<Self> {
        match assigned {
            FactOutput::Outbox(id) => {
                let message = outbound.message;
                Some(Self { id: *id, message, attempts: 0, is_fate_unknown: false, is_caller_gone: false })
            }
            _ => None,
        }
    }

    /// A message that a process left when it died: it may have been sending it.
    pub(crate) fn from_orphaned(record: OutboxRecord) -> Self {
        let attempts = match record.status {
            OutboxStatus::Waiting { attempts, .. } => attempts,
            OutboxStatus::Sent { .. } | OutboxStatus::Undelivered { .. } | OutboxStatus::Noted { .. } => 0,
        };
        Self { id: record.id, message: record.message, attempts, is_fate_unknown: true, is_caller_gone: false }
    }

    /// A message that a caller did not take, or that a process left which died: then it may have been taken.
    pub(crate) fn from_unclaimed(record: OutboxRecord) -> Self {
        let fate_unknown = matches!(record.status, OutboxStatus::Waiting { .. });
        Self { is_fate_unknown: fate_unknown, ..Self::from_orphaned(record) }
    }
}

/// What goes out when an event has ended.
pub(crate) struct EventDelivery {
    pub(crate) inbound: InboundEvent,
    pub(crate) served_event: ServedEvent,
    pub(crate) outcome: Outcome,
    pub(crate) rows: Vec<OutboxRow>,
    pub(crate) caller: Option<WaitingCaller>,
    /// The caller behind the channel is gone.
    pub(crate) is_caller_gone: bool,
}

impl EventDelivery {
    /// The parcel of an event that ended like this, with no messages.
    pub(crate) fn new(item: AcceptedEvent, outcome: Outcome, run_id: Option<RunId>) -> Self {
        let served = ServedEvent { run_id, outcome: Some(outcome.clone()), ..ServedEvent::in_flight(item.session) };
        Self {
            inbound: item.inbound,
            served_event: served,
            outcome,
            rows: Vec::new(),
            caller: item.caller,
            is_caller_gone: item.is_caller_gone,
        }
    }

    /// The parcel of an event that was let go.
    pub(crate) fn for_dropped(item: AcceptedEvent) -> Self {
        Self::new(item, Outcome::Dropped, None)
    }

    /// The answer to a caller that waits on this channel: also one that asks again is told what was to be sent.
    pub(crate) fn to_channel_reply(&self, channel: &ChannelName) -> ChannelReply {
        let messages = self.served_event.outbounds.iter().filter(|message| message.channel == *channel);
        ChannelReply {
            event: self.inbound.clone(),
            session: self.served_event.session.clone(),
            outcome: self.outcome.clone(),
            run_id: self.served_event.run_id.clone(),
            messages: messages.cloned().collect(),
            is_duplicate: self.served_event.is_duplicate,
        }
    }
}

/// Whoever waits inside this process is told when everything of an event was tried once: when the last clone is
/// dropped.
#[derive(Clone)]
pub(crate) struct CallerReceipt(Arc<PendingReceipt>);

struct PendingReceipt(Mutex<Option<(WaitingCaller, ServedEvent)>>);

impl CallerReceipt {
    pub(crate) fn new(caller: Option<WaitingCaller>, served: ServedEvent) -> Self {
        Self(Arc::new(PendingReceipt(Mutex::new(caller.map(|caller| (caller, served))))))
    }

    /// A message could not be delivered.
    pub(crate) fn record_undelivered(&self, reason: &str) {
        if let Some((_, served)) = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            served.delivery_errors.push(reason.to_owned());
        }
    }
}

impl Drop for PendingReceipt {
    fn drop(&mut self) {
        if let Some((caller, served)) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // Whoever asked may have gone.
            let _unheard = caller.send(Ok(served));
        }
    }
}
