//! What goes out when an event has ended: its messages, and the word to whoever waits for it.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_hooks::Inbound;
use capstan_hooks::contracts::Answer;
use capstan_protocol::{ChannelName, Outbound, Outcome, RunId, Usage};
use capstan_tape::{Assigned, NewOutbound, OutboxId, OutboxRecord, OutboxStatus};
use capstan_turn::TurnError;

use crate::Served;
use crate::sessions::item::{Caller, Item};

/// A message that waits in the outbox.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) id: OutboxId,
    pub(crate) message: Outbound,
    /// How often it was tried.
    pub(crate) attempts: u32,
    /// Whether one of those may have gone through.
    pub(crate) fate_unknown: bool,
    /// Whoever waited for it is gone: it is not for whoever waits on that channel now.
    pub(crate) caller_gone: bool,
}

impl Row {
    /// A message that was staged under this id.
    pub(crate) fn staged(assigned: &Assigned, outbound: NewOutbound) -> Option<Self> {
        match assigned {
            Assigned::Outbox(id) => {
                let message = outbound.message;
                Some(Self { id: *id, message, attempts: 0, fate_unknown: false, caller_gone: false })
            }
            _ => None,
        }
    }

    /// A message that a process left when it died: it may have been sending it.
    pub(crate) fn left_behind(record: OutboxRecord) -> Self {
        let attempts = match record.status {
            OutboxStatus::Waiting { attempts, .. } => attempts,
            OutboxStatus::Sent { .. } | OutboxStatus::Undelivered { .. } | OutboxStatus::Noted { .. } => 0,
        };
        Self { id: record.id, message: record.message, attempts, fate_unknown: true, caller_gone: false }
    }

    /// A message that a caller did not take, or that a process left which died: then it may have been taken.
    pub(crate) fn to_be_given(record: OutboxRecord) -> Self {
        let fate_unknown = matches!(record.status, OutboxStatus::Waiting { .. });
        Self { fate_unknown, ..Self::left_behind(record) }
    }
}

/// What goes out when an event has ended.
pub(crate) struct Parcel {
    pub(crate) inbound: Inbound,
    pub(crate) served: Served,
    pub(crate) outcome: Outcome,
    pub(crate) rows: Vec<Row>,
    pub(crate) caller: Option<Caller>,
}

impl Parcel {
    /// The parcel of an event that ended like this, with no messages.
    pub(crate) fn of(item: Item, outcome: Outcome, run_id: Option<RunId>) -> Self {
        let served = Served { run_id, outcome: Some(outcome.clone()), ..Served::in_flight(item.session) };
        Self { inbound: item.inbound, served, outcome, rows: Vec::new(), caller: item.caller }
    }

    /// The parcel of an event that was let go.
    pub(crate) fn dropped(item: Item) -> Self {
        Self::of(item, Outcome::Dropped, None)
    }

    /// The same, with what the turn came to.
    pub(crate) fn with(mut self, output: String, usage: Option<Usage>, error: Option<TurnError>) -> Self {
        self.served = Served { output, usage, error, ..self.served };
        self
    }

    /// The answer to a caller that waits on this channel: also one that asks again is told what was to be sent.
    pub(crate) fn answer(&self, channel: &ChannelName) -> Answer {
        let messages = self.served.outbounds.iter().filter(|message| message.channel == *channel);
        Answer {
            event: self.inbound.clone(),
            session: self.served.session.clone(),
            outcome: self.outcome.clone(),
            run_id: self.served.run_id.clone(),
            messages: messages.cloned().collect(),
            duplicate: self.served.duplicate,
        }
    }
}

/// Whoever waits inside this process is told when everything of an event was tried once: when the last clone is
/// dropped.
#[derive(Clone)]
pub(crate) struct Receipt(Arc<Waiting>);

struct Waiting(Mutex<Option<(Caller, Served)>>);

impl Receipt {
    pub(crate) fn new(caller: Option<Caller>, served: Served) -> Self {
        Self(Arc::new(Waiting(Mutex::new(caller.map(|caller| (caller, served))))))
    }

    /// A message could not be delivered.
    pub(crate) fn undelivered(&self, reason: &str) {
        if let Some((_, served)) = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            served.undelivered.push(reason.to_owned());
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((caller, served)) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // Whoever asked may have gone.
            let _unheard = caller.send(Ok(served));
        }
    }
}

/// Marks an event whose caller is gone: nobody is shown or sent anything on a channel where callers wait.
pub(crate) struct CallerGone;
