//! Accepted events and the turn batches they form, from acceptance to outcome.

use std::sync::Arc;

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::ChannelReply;
use capstan_protocol::{Binding, EntryId, EventKey, Outcome, RunId, SessionId};
use capstan_tape::Fence;
use capstan_turn::{EventArrival, TurnError};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{HostError, ServedEvent};
use capstan_delivery::{EventDelivery, LocalCallerReceipt, OutboxRow};

/// Code in this process that awaits the result of an event.
pub(crate) type LocalCaller = oneshot::Sender<Result<ServedEvent, HostError>>;

/// An event that its session has accepted.
#[derive(Debug)]
pub(crate) struct AcceptedEvent {
    /// The event, which names its session.
    pub(crate) inbound: InboundEvent,
    pub(crate) key: EventKey,
    pub(crate) session: SessionId,
    /// Entry that records its acceptance.
    pub(crate) entry: EntryId,
    /// Lease of the session, if the commit of the event acquired it.
    pub(crate) lease: Option<Fence>,
    /// Mode, kind and debounce options with which the mailbox admits the event.
    pub(crate) arrival: EventArrival,
    /// Binding that came with the event. No other binding is resolved for it.
    pub(crate) own_binding: Option<Arc<Binding>>,
    /// Binding that was last resolved for the event.
    pub(crate) binding: Option<Arc<Binding>>,
    /// Entry of its message, if an interrupted run ingested it.
    pub(crate) message_entry: Option<EntryId>,
    /// The turn of its batch replies to this event. In a batch without such an event it replies to the last one.
    pub(crate) is_lead: bool,
    pub(crate) caller: Option<LocalCaller>,
    /// The caller on its channel has disconnected: a channel with waiting callers is shown and sent nothing.
    pub(crate) is_caller_disconnected: bool,
    /// Its callers were notified that the store delays the outcome.
    pub(crate) is_delay_reported: bool,
    /// Queue slot, until its turn begins.
    pub(crate) slot: Option<OwnedSemaphorePermit>,
}

impl AcceptedEvent {
    /// Event of a session with this arrival, before it is committed.
    pub(crate) fn new(inbound: InboundEvent, session: SessionId, arrival: EventArrival) -> Self {
        Self {
            key: EventKey::from(&*inbound),
            inbound,
            session,
            entry: EntryId::default(),
            lease: None,
            arrival,
            own_binding: None,
            binding: None,
            message_entry: None,
            is_lead: false,
            caller: None,
            is_caller_disconnected: false,
            is_delay_reported: false,
            slot: None,
        }
    }

    /// Delivery of the event with this outcome and these messages.
    pub(crate) fn into_delivery(self, served: ServedEvent, outcome: Outcome, rows: Vec<OutboxRow>) -> EventDelivery {
        let reply = ChannelReply {
            event: self.inbound,
            session: served.session.clone(),
            outcome,
            run_id: served.run_id.clone(),
            messages: served.outbounds.clone(),
            command_error: served.command_error.clone(),
            is_duplicate: served.is_duplicate,
        };
        let receipt = match self.caller {
            None => LocalCallerReceipt::none(),
            Some(caller) => {
                let mut served = served;
                served.outbounds.extend(rows.iter().map(|row| row.message.clone()));
                LocalCallerReceipt::new(move |delivery_errors| {
                    // The caller may have disconnected.
                    let _disconnected = caller.send(Ok(ServedEvent { delivery_errors, ..served }));
                })
            }
        };
        EventDelivery { reply, rows, is_caller_disconnected: self.is_caller_disconnected, receipt }
    }

    /// Delivery of the event with this outcome, without messages.
    pub(crate) fn into_settled(self, outcome: Outcome, run_id: Option<RunId>) -> EventDelivery {
        let served =
            ServedEvent { run_id, outcome: Some(outcome.clone()), ..ServedEvent::in_flight(self.session.clone()) };
        self.into_delivery(served, outcome, Vec::new())
    }
}

/// Events that get one turn together. There is at least one.
pub(crate) struct TurnBatch {
    /// Event that the turn replies to.
    pub(crate) lead: AcceptedEvent,
    /// Other events, in the order of their acceptance.
    pub(crate) others: Vec<AcceptedEvent>,
    /// Event that the turn processes: the lead with the inputs of all events.
    pub(crate) inbound: InboundEvent,
    /// Binding of its events, if it is resolved; or the error that prevented that.
    pub(crate) binding: Result<Option<Arc<Binding>>, TurnError>,
}

impl TurnBatch {
    /// Batch of one event.
    pub(crate) fn from_event(event: AcceptedEvent) -> Self {
        Self { inbound: event.inbound.clone(), binding: Ok(event.binding.clone()), others: Vec::new(), lead: event }
    }

    /// Batch of these events, in the order of their acceptance; `None` if there are none.
    pub(crate) fn new(mut events: Vec<AcceptedEvent>) -> Option<Self> {
        events.sort_by_key(|event| event.entry);
        let inbounds: Vec<InboundEvent> = events.iter().map(|event| event.inbound.clone()).collect();
        let lead = events.iter().position(|event| event.is_lead).or_else(|| events.len().checked_sub(1))?;
        let lead = events.remove(lead);
        let binding = Ok(lead.binding.clone());
        let inbound =
            if events.is_empty() { lead.inbound.clone() } else { lead.inbound.with_combined_events(inbounds) };
        Some(Self { lead, others: events, inbound, binding })
    }

    /// All events, the lead first.
    pub(crate) fn events(&self) -> impl Iterator<Item = &AcceptedEvent> {
        std::iter::once(&self.lead).chain(&self.others)
    }

    /// Events of the batch, in the order of their acceptance.
    pub(crate) fn into_events(self) -> Vec<AcceptedEvent> {
        let mut events = self.others;
        events.push(self.lead);
        events.sort_by_key(|event| event.entry);
        events
    }

    /// Oldest entry that records the acceptance of one of the events.
    pub(crate) fn first_entry(&self) -> EntryId {
        self.events().map(|event| event.entry).min().unwrap_or_default()
    }

    /// Newest entry that records the acceptance of one of the events.
    pub(crate) fn newest_entry(&self) -> EntryId {
        self.events().map(|event| event.entry).max().unwrap_or_default()
    }

    /// Releases the queue slots of the events when their turn begins.
    pub(crate) fn release_slots(&mut self) {
        self.lead.slot = None;
        for event in &mut self.others {
            event.slot = None;
        }
    }
}
