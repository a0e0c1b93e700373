//! An event in its session, from acceptance to outcome.

use capstan_hooks::Inbound;
use capstan_protocol::{EntryId, EventKey, Input, SessionId};
use capstan_turn::Arrival;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{HostError, Served};

/// Who wants to know what became of an event, inside this process.
pub(crate) type Caller = oneshot::Sender<Result<Served, HostError>>;

/// An event in its session.
#[derive(Debug)]
pub(crate) struct Item {
    /// The event, its session written to it.
    pub(crate) inbound: Inbound,
    pub(crate) key: EventKey,
    pub(crate) session: SessionId,
    /// The entry that tells of it.
    pub(crate) entry: EntryId,
    /// How it is to be taken in.
    pub(crate) arrival: Arrival,
    /// Where its message stands, if a run that was cut off took it in.
    pub(crate) message: Option<EntryId>,
    /// Of events that become one turn, the one that turn answers; otherwise it is the last.
    pub(crate) leads: bool,
    pub(crate) caller: Option<Caller>,
    /// Its place among those that wait.
    pub(crate) place: Option<OwnedSemaphorePermit>,
}

/// Events that become one turn. There is at least one.
pub(crate) struct Group {
    /// The one that is answered.
    pub(crate) lead: Item,
    /// The others, in order.
    pub(crate) others: Vec<Item>,
    /// The event the turn works on: the lead, with what all of them say.
    pub(crate) inbound: Inbound,
}

/// What stands between the texts of events that become one turn.
const BETWEEN_TEXTS: &str = "\n";

impl Group {
    /// The group of these events, in the order they came; nothing if there are none.
    pub(crate) fn new(mut items: Vec<Item>) -> Option<Self> {
        items.sort_by_key(|item| item.entry);
        let inputs: Vec<Input> = items.iter().map(|item| item.inbound.input.clone()).collect();
        let lead = items.iter().position(|item| item.leads).or_else(|| items.len().checked_sub(1))?;
        let lead = items.remove(lead);
        let inbound = if items.is_empty() { lead.inbound.clone() } else { lead.inbound.with_input(joined(inputs)) };
        Some(Self { lead, others: items, inbound })
    }

    /// Every event of it.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> {
        std::iter::once(&self.lead).chain(&self.others)
    }

    /// Its events, in the order they came.
    pub(crate) fn into_items(self) -> Vec<Item> {
        let mut items = self.others;
        items.push(self.lead);
        items.sort_by_key(|item| item.entry);
        items
    }

    /// The newest entry that tells of one of them.
    pub(crate) fn head(&self) -> EntryId {
        self.items().map(|item| item.entry).max().unwrap_or_default()
    }

    /// Its events no longer wait: others may.
    pub(crate) fn leave_queue(&mut self) {
        self.lead.place = None;
        for item in &mut self.others {
            item.place = None;
        }
    }
}

/// What several events say, as if one had said it.
fn joined(inputs: Vec<Input>) -> Input {
    let texts: Vec<&str> = inputs.iter().filter_map(|input| input.text.as_deref()).collect();
    let text = (!texts.is_empty()).then(|| texts.join(BETWEEN_TEXTS));
    Input { text, contents: inputs.into_iter().flat_map(|input| input.contents).collect() }
}
