//! Splits a batch by binding: events that become one turn, enter one or end one all have the same binding.

use std::sync::Arc;

use capstan_protocol::Binding;
use capstan_turn::TurnError;

use super::accepted_event::{AcceptedEvent, TurnBatch};
use crate::services::Services;

/// Binding of an event, if one fits; or the error that kept it from being resolved.
type BindingLookup = Result<Option<Arc<Binding>>, TurnError>;

impl Services {
    /// Resolves the bindings of a batch and splits it into batches that have one binding each, in order. There is at
    /// least one. Each event is resolved by itself: what they say together none of them has said.
    ///
    /// Events that an interrupted run ingested stay together: they stand on the tape, for every run to read.
    pub(crate) async fn split_by_binding(&self, mut batch: TurnBatch) -> Vec<TurnBatch> {
        let was_ingested = batch.events().any(|event| event.message_entry.is_some());
        if batch.others.is_empty() || was_ingested {
            batch.binding = self.resolve_event_binding(&mut batch.lead).await;
            return vec![batch];
        }
        let mut parts: Vec<(BindingLookup, Vec<AcceptedEvent>)> = Vec::new();
        for mut event in batch.into_events() {
            let binding = self.resolve_event_binding(&mut event).await;
            match parts.last_mut() {
                Some((before, events)) if matches!(binding, Ok(Some(_))) && *before == binding => events.push(event),
                _ => parts.push((binding, vec![event])),
            }
        }
        let batch = |(binding, events)| Some(TurnBatch { binding, ..TurnBatch::new(events)? });
        parts.into_iter().filter_map(batch).collect()
    }

    /// Resolves the binding of an event again, and keeps it with the event.
    pub(crate) async fn resolve_event_binding(&self, event: &mut AcceptedEvent) -> BindingLookup {
        let binding = self.resolve_binding(&event.inbound, event.own_binding.as_ref()).await?;
        event.binding.clone_from(&binding);
        Ok(binding)
    }
}
