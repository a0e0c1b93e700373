//! Splits a turn batch so that all events of a turn have the same binding and the same origin. Steering and interruption
//! apply the same rule in `capstan-runs` and in the admission of events.

use std::sync::Arc;

use capstan_policy::{BindingError, BindingStore};
use capstan_protocol::Binding;
use capstan_turn::{RunError, TurnError};

use crate::accepted_event::{AcceptedEvent, TurnBatch};

/// Binding of an event, if one matches; or the error that prevented its resolution.
type BindingLookup = Result<Option<Arc<Binding>>, TurnError>;

impl TurnBatch {
    /// Resolves the bindings of a batch and splits it into batches that have one binding and one origin each, in order.
    /// Returns at least one batch. Each event is resolved separately, because the joined input is the input of none of them.
    ///
    /// Events that an interrupted run ingested stay together: they are on the tape, where every run reads them. Earlier
    /// versions ingested events of several origins, which then have the authority of the least trusted one.
    pub(crate) async fn split_by_binding(mut self, bindings: &BindingStore) -> Vec<Self> {
        let was_ingested = self.events().any(|event| event.message_entry.is_some());
        if self.others.is_empty() || was_ingested {
            match bindings.resolve(&self.lead.inbound, self.lead.own_binding.as_ref()).await {
                Ok(binding) => {
                    self.lead.binding.clone_from(&binding);
                    self.binding = Ok(binding);
                }
                Err(error) => self.binding = Err(binding_turn_error(&error)),
            }
            let origin = self.events().map(|event| event.inbound.origin()).min().unwrap_or_default();
            self.inbound = self.inbound.with_origin(origin);
            return vec![self];
        }
        let mut parts: Vec<(BindingLookup, Vec<AcceptedEvent>)> = Vec::new();
        for mut event in self.into_events() {
            let binding = match bindings.resolve(&event.inbound, event.own_binding.as_ref()).await {
                Ok(binding) => {
                    event.binding.clone_from(&binding);
                    Ok(binding)
                }
                Err(error) => Err(binding_turn_error(&error)),
            };
            let has_same_origin =
                |events: &[AcceptedEvent]| events.iter().all(|other| other.inbound.origin() == event.inbound.origin());
            match parts.last_mut() {
                Some((before, events))
                    if matches!(binding, Ok(Some(_))) && *before == binding && has_same_origin(events) =>
                {
                    events.push(event);
                }
                _ => parts.push((binding, vec![event])),
            }
        }
        let batch = |(binding, events)| Some(TurnBatch { binding, ..TurnBatch::new(events)? });
        parts.into_iter().filter_map(batch).collect()
    }
}

/// Failure of a turn whose binding cannot be read or resolved. The message is for the sender and omits the stored text.
pub(crate) fn binding_turn_error(error: &BindingError) -> TurnError {
    let message = match error {
        BindingError::Store(error) => return error.clone().into(),
        BindingError::Unreadable { binding_id, .. } => {
            format!("the message was not processed: the binding {binding_id} cannot be read")
        }
        error => error.to_string(),
    };
    TurnError::Run(RunError { message, code: Some(error.code().into()) })
}
