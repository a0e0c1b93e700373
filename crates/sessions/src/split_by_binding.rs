//! Splits a batch by binding: events that share a turn, are offered to its run or interrupt it have the same binding.

use std::sync::Arc;

use capstan_protocol::Binding;
use capstan_runs::BindingResolver;
use capstan_turn::TurnError;

use crate::accepted_event::{AcceptedEvent, TurnBatch};

/// Binding of an event, if one matches; or the error that prevented its resolution.
type BindingLookup = Result<Option<Arc<Binding>>, TurnError>;

impl TurnBatch {
    /// Resolves the bindings of a batch and splits it into batches that have one binding each, in order. There is at
    /// least one. Each event is resolved separately, because the joined input is the input of none of them.
    ///
    /// Events that an interrupted run ingested stay together: they are on the tape, where every run reads them.
    pub(crate) async fn split_by_binding(mut self, bindings: &BindingResolver) -> Vec<Self> {
        let was_ingested = self.events().any(|event| event.message_entry.is_some());
        if self.others.is_empty() || was_ingested {
            self.binding = self.lead.resolve_binding(bindings).await;
            return vec![self];
        }
        let mut parts: Vec<(BindingLookup, Vec<AcceptedEvent>)> = Vec::new();
        for mut event in self.into_events() {
            let binding = event.resolve_binding(bindings).await;
            match parts.last_mut() {
                Some((before, events)) if matches!(binding, Ok(Some(_))) && *before == binding => events.push(event),
                _ => parts.push((binding, vec![event])),
            }
        }
        let batch = |(binding, events)| Some(TurnBatch { binding, ..TurnBatch::new(events)? });
        parts.into_iter().filter_map(batch).collect()
    }
}

impl AcceptedEvent {
    /// Resolves the binding of the event again, and stores it in the event.
    pub(crate) async fn resolve_binding(&mut self, bindings: &BindingResolver) -> BindingLookup {
        let binding = bindings.resolve(&self.inbound, self.own_binding.as_ref()).await?;
        self.binding.clone_from(&binding);
        Ok(binding)
    }
}
