//! What the events of a turn may do: those that become one turn, enter one or end one, all have the same binding.

use std::sync::Arc;

use capstan_protocol::{AdmissionMode, Binding};
use capstan_turn::{Arrival, TurnError};

use super::item::{Group, Item};
use crate::engine::Active;
use crate::services::Services;

/// The binding of an event, if it has one; or why that cannot be told.
type Found = Result<Option<Arc<Binding>>, TurnError>;

/// Events that become one turn, and what it is done under.
pub(crate) struct Bound {
    pub(crate) group: Group,
    pub(crate) binding: Found,
    /// What was to be part of that turn and has another binding: turns of their own after it, in order.
    pub(crate) rest: Vec<Vec<Item>>,
}

impl Services {
    /// Looks what binding events have that are to become one turn, and leaves together those that have the same. Each is
    /// looked at by itself: what they say together none of them has said. There is always something to do.
    ///
    /// What a run that was cut off took in stays together: it stands on the tape, for every run to read.
    pub(crate) async fn of_one_binding(&self, group: Group) -> Option<Bound> {
        let was_taken_in = group.items().any(|item| item.message.is_some());
        if group.others.is_empty() || was_taken_in {
            let binding = self.binding_of(&group.lead.inbound).await;
            return Some(Bound { group, binding, rest: Vec::new() });
        }
        let mut parts: Vec<(Found, Vec<Item>)> = Vec::new();
        for item in group.into_items() {
            let binding = self.binding_of(&item.inbound).await;
            match parts.last_mut() {
                Some((Ok(Some(before)), items)) if matches!(&binding, Ok(Some(binding)) if binding == before) => {
                    items.push(item);
                }
                _ => parts.push((binding, vec![item])),
            }
        }
        let mut parts = parts.into_iter();
        let (binding, items) = parts.next()?;
        Some(Bound { group: Group::new(items)?, binding, rest: parts.map(|(_, items)| items).collect() })
    }
}

impl Active {
    /// How an event is taken in that arrives during this turn: one that is served under another binding, or under none,
    /// does not end it.
    pub(crate) fn admits(&self, item: &Item) -> Arrival {
        let id = |binding: &Option<Arc<Binding>>| binding.as_ref().map(|binding| binding.binding_id.clone());
        let its_own = id(&item.inbound.extensions().get());
        if item.arrival.mode == AdmissionMode::Interrupt && (its_own.is_none() || its_own != id(&self.binding)) {
            return Arrival { mode: AdmissionMode::FollowUp, ..item.arrival };
        }
        item.arrival
    }
}
