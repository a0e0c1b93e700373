//! An event in its session, from acceptance to outcome.

use std::sync::Arc;

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::ChannelReply;
use capstan_protocol::{Binding, EntryId, EventInput, EventKey, Outcome, RunId, SessionId};
use capstan_tape::Fence;
use capstan_turn::{EventArrival, TurnError};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{HostError, ServedEvent};
use capstan_delivery::{CallerReceipt, EventDelivery, OutboxRow};

/// Who wants to know what became of an event, inside this process.
pub(crate) type WaitingCaller = oneshot::Sender<Result<ServedEvent, HostError>>;

/// An event in its session.
#[derive(Debug)]
pub(crate) struct AcceptedEvent {
    /// The event, its session written to it.
    pub(crate) inbound: InboundEvent,
    pub(crate) key: EventKey,
    pub(crate) session: SessionId,
    /// The entry that tells of it.
    pub(crate) entry: EntryId,
    /// Lease of the session that its acceptance acquired.
    pub(crate) lease: Option<Fence>,
    /// How it is to be taken in.
    pub(crate) arrival: EventArrival,
    /// Binding that came with the event. No other is resolved for it.
    pub(crate) own_binding: Option<Arc<Binding>>,
    /// Binding that was last resolved for it.
    pub(crate) binding: Option<Arc<Binding>>,
    /// Where its message stands, if a run that was cut off took it in.
    pub(crate) message_entry: Option<EntryId>,
    /// Of events that become one turn, the one that turn answers; otherwise it is the last.
    pub(crate) is_lead: bool,
    pub(crate) caller: Option<WaitingCaller>,
    /// The caller behind its channel is gone: nothing is shown or sent on a channel where callers wait.
    pub(crate) is_caller_gone: bool,
    /// Its callers were told that the store delays the outcome.
    pub(crate) is_delay_reported: bool,
    /// Its place among those that wait.
    pub(crate) slot: Option<OwnedSemaphorePermit>,
}

impl AcceptedEvent {
    /// An event of a session that arrives like this, before it is committed.
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
            is_caller_gone: false,
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
            is_duplicate: served.is_duplicate,
        };
        let receipt = match self.caller {
            None => CallerReceipt::none(),
            Some(caller) => {
                let mut served = served;
                served.outbounds.extend(rows.iter().map(|row| row.message.clone()));
                CallerReceipt::new(move |delivery_errors| {
                    // The caller may be gone.
                    let _unheard = caller.send(Ok(ServedEvent { delivery_errors, ..served }));
                })
            }
        };
        EventDelivery { reply, rows, is_caller_gone: self.is_caller_gone, receipt }
    }

    /// Delivery of the event with this outcome, without messages.
    pub(crate) fn into_settled(self, outcome: Outcome, run_id: Option<RunId>) -> EventDelivery {
        let served =
            ServedEvent { run_id, outcome: Some(outcome.clone()), ..ServedEvent::in_flight(self.session.clone()) };
        self.into_delivery(served, outcome, Vec::new())
    }
}

/// Events that become one turn. There is at least one.
pub(crate) struct TurnBatch {
    /// The one that is answered.
    pub(crate) lead: AcceptedEvent,
    /// The others, in order.
    pub(crate) others: Vec<AcceptedEvent>,
    /// The event the turn works on: the lead, with what all of them say.
    pub(crate) inbound: InboundEvent,
    /// The binding of its events, as far as it is resolved; or the error that kept it from being.
    pub(crate) binding: Result<Option<Arc<Binding>>, TurnError>,
}

/// What stands between the texts of events that become one turn.
const BATCH_TEXT_SEPARATOR: &str = "\n";

impl TurnBatch {
    /// The batch of one event.
    pub(crate) fn from_event(event: AcceptedEvent) -> Self {
        Self { inbound: event.inbound.clone(), binding: Ok(event.binding.clone()), others: Vec::new(), lead: event }
    }

    /// The batch of these events, in the order they came; nothing if there are none.
    pub(crate) fn new(mut items: Vec<AcceptedEvent>) -> Option<Self> {
        items.sort_by_key(|item| item.entry);
        let inputs: Vec<EventInput> = items.iter().map(|item| item.inbound.input.clone()).collect();
        let lead = items.iter().position(|item| item.is_lead).or_else(|| items.len().checked_sub(1))?;
        let lead = items.remove(lead);
        let binding = Ok(lead.binding.clone());
        let inbound =
            if items.is_empty() { lead.inbound.clone() } else { lead.inbound.with_input(join_inputs(inputs)) };
        Some(Self { lead, others: items, inbound, binding })
    }

    /// Every event of it.
    pub(crate) fn events(&self) -> impl Iterator<Item = &AcceptedEvent> {
        std::iter::once(&self.lead).chain(&self.others)
    }

    /// Its events, in the order they came.
    pub(crate) fn into_events(self) -> Vec<AcceptedEvent> {
        let mut items = self.others;
        items.push(self.lead);
        items.sort_by_key(|item| item.entry);
        items
    }

    /// The newest entry that tells of one of them.
    pub(crate) fn newest_entry(&self) -> EntryId {
        self.events().map(|item| item.entry).max().unwrap_or_default()
    }

    /// Its events no longer wait: others may.
    pub(crate) fn release_slots(&mut self) {
        self.lead.slot = None;
        for item in &mut self.others {
            item.slot = None;
        }
    }
}

/// What several events say, as if one had said it.
fn join_inputs(inputs: Vec<EventInput>) -> EventInput {
    let texts: Vec<&str> = inputs.iter().filter_map(|input| input.text.as_deref()).collect();
    let text = (!texts.is_empty()).then(|| texts.join(BATCH_TEXT_SEPARATOR));
    EventInput { text, contents: inputs.into_iter().flat_map(|input| input.contents).collect() }
}
