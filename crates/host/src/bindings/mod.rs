//! Which binding an event gets.
//!
//! One event gets one binding: of those that fit it, the one that fits closest (see [`Closeness`]). Two that fit an event
//! equally close cannot both be in force, so which one it is never depends on their order. A binding that cannot be read
//! gives way to no other: the events that it could fit are refused.

mod binding_match;
mod binding_store;
mod binding_validation;
mod conflict;
mod specificity;
mod unreadable_binding;

use capstan_protocol::{
    Binding, BindingId, BindingScope, DeliveryPolicy, Event, JsonObject, ResourcePolicy, StatePolicy,
};
use serde::Serialize;

pub use binding_match::BindingMismatch;
pub use binding_store::BindingStore;
pub use binding_validation::BindingError;
pub(crate) use binding_validation::validate_binding;
pub use specificity::BindingSpecificity;
pub use unreadable_binding::UnreadableBinding;

/// The binding that makes a fresh install work: every event goes to the built-in agent. It is in force until bindings are
/// first changed, and is one of them from then on.
pub fn default_binding() -> Binding {
    Binding {
        binding_id: "default".into(),
        scope: BindingScope::default(),
        event_types: Vec::new(),
        filters: Vec::new(),
        runner_id: "builtin:agent".into(),
        runner_config: JsonObject::new(),
        resource_policy: ResourcePolicy::default(),
        state_policy: StatePolicy::default(),
        delivery_policy: DeliveryPolicy::default(),
        enabled: true,
    }
}

/// Which binding an event would get, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingChoice {
    /// The binding; none means that nothing is done about the event.
    pub binding_id: Option<BindingId>,
    /// Why that one.
    pub reason: String,
    /// The others, and why each is not it.
    pub losers: Vec<RejectedBinding>,
}

/// A binding that an event does not get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RejectedBinding {
    /// The binding.
    pub binding_id: BindingId,
    /// Why not.
    pub reason: String,
}

/// The binding that an event gets.
pub fn resolve_binding<'a>(bindings: &'a [Binding], event: &Event) -> Option<&'a Binding> {
    let fitting =
        bindings.iter().filter_map(|binding| Some((binding_match::match_binding(binding, event).ok()?, binding)));
    fitting.max_by_key(|(closeness, _)| *closeness).map(|(_, binding)| binding)
}

/// The same with the reasons.
pub fn explain_choice(bindings: &[Binding], event: &Event) -> BindingChoice {
    let winner = resolve_binding(bindings, event);
    let closest = winner.and_then(|winner| binding_match::match_binding(winner, event).ok());
    let reason = match closest {
        Some(closeness) => format!("it fits closest: {closeness}"),
        None => "no binding fits this event, so nothing is done about it".to_owned(),
    };
    let others = bindings.iter().filter(|binding| winner.is_none_or(|winner| winner.binding_id != binding.binding_id));
    let loser = |binding: &Binding| RejectedBinding {
        binding_id: binding.binding_id.clone(),
        reason: match binding_match::match_binding(binding, event) {
            Ok(closeness) => format!("it fits, but less closely: {closeness}"),
            Err(misfit) => misfit.to_string(),
        },
    };
    BindingChoice {
        binding_id: winner.map(|winner| winner.binding_id.clone()),
        reason,
        losers: others.map(loser).collect(),
    }
}
