//! Resolves the binding that an event is served under.

use std::sync::Arc;

use capstan_policy::{BindingError, BindingStore};
use capstan_protocol::{Binding, Event};
use capstan_turn::{RunError, TurnError};

/// Resolves bindings for turns. Cheap to clone.
#[derive(Clone)]
pub struct BindingResolver(Arc<BindingStore>);

impl BindingResolver {
    /// Resolver over the bindings of a store.
    pub fn new(store: BindingStore) -> Self {
        Self(Arc::new(store))
    }

    /// Bindings of the host.
    pub fn store(&self) -> &BindingStore {
        &self.0
    }

    /// Resolves the binding of an event: its own if it came with one, else the closest match.
    pub async fn resolve(
        &self,
        event: &Event,
        own_binding: Option<&Arc<Binding>>,
    ) -> Result<Option<Arc<Binding>>, TurnError> {
        match own_binding {
            Some(binding) => Ok(Some(Arc::clone(binding))),
            None => Ok(self.0.resolve(event).await.map_err(|error| binding_turn_error(&error))?.map(Arc::new)),
        }
    }
}

/// Failure of a turn whose binding cannot be read or resolved. The message is for the sender and omits the stored text.
fn binding_turn_error(error: &BindingError) -> TurnError {
    let message = match error {
        BindingError::Store(error) => return error.clone().into(),
        BindingError::Unreadable { binding_id, .. } => {
            format!("the binding {binding_id} cannot be read, so nothing is done about this")
        }
        error => error.to_string(),
    };
    TurnError::Run(RunError { message, code: Some(error.code().into()) })
}
