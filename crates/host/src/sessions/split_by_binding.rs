//! What the events of a turn may do: those that become one turn, enter one or end one, all have the same binding.

use std::sync::Arc;

use capstan_protocol::{AdmissionMode, Binding};
use capstan_turn::{EventArrival, TurnError};

use super::accepted_event::{AcceptedEvent, TurnBatch};
use crate::engine::ActiveTurn;
use crate::services::Services;

/// The binding of an event, if it has one; or why that cannot be told.
type BindingLookup = Result<Option<Arc<Binding>>, TurnError>;

/// Events that become one turn, and what it is done under.
pub(crate) struct BoundBatch {
    pub(crate) batch: TurnBatch,
    pub(crate) binding: BindingLookup,
    /// What was to be part of that turn and has another binding: turns of their own after it, in order.
    pub(crate) deferred: Vec<Vec<AcceptedEvent>>,
}

impl Services {
    /// Looks what binding events have that are to become one turn, and leaves together those that have the same. Each is
    /// looked at by itself: what they say together none of them has said. There is always something to do.
    ///
    /// What a run that was cut off took in stays together: it stands on the tape, for every run to read.
    pub(crate) async fn split_by_binding(&self, group: TurnBatch) -> Option<BoundBatch> {
        let was_taken_in = group.events().any(|item| item.message_entry.is_some());
        if group.others.is_empty() || was_taken_in {
            let binding = self.resolve_binding(&group.lead.inbound).await;
            return Some(BoundBatch { batch: group, binding, deferred: Vec::new() });
        }
        let mut parts: Vec<(BindingLookup, Vec<AcceptedEvent>)> = Vec::new();
        for item in group.into_events() {
            let binding = self.resolve_binding(&item.inbound).await;
            match parts.last_mut() {
                Some((Ok(Some(before)), items)) if matches!(&binding, Ok(Some(binding)) if binding == before) => {
                    items.push(item);
                }
                _ => parts.push((binding, vec![item])),
            }
        }
        let mut parts = parts.into_iter();
        let (binding, items) = parts.next()?;
        Some(BoundBatch { batch: TurnBatch::new(items)?, binding, deferred: parts.map(|(_, items)| items).collect() })
    }
}

impl ActiveTurn {
    /// How an event is taken in that arrives during this turn: one that is served under another binding, or under none,
    /// does not end it.
    pub(crate) fn effective_arrival(&self, item: &AcceptedEvent) -> EventArrival {
        let id = |binding: &Option<Arc<Binding>>| binding.as_ref().map(|binding| binding.binding_id.clone());
        let its_own = id(&item.inbound.extensions().get());
        if item.arrival.mode == AdmissionMode::Interrupt && (its_own.is_none() || its_own != id(&self.binding)) {
            return EventArrival { mode: AdmissionMode::FollowUp, ..item.arrival };
        }
        item.arrival
    }
}
