//! Which binding an event gets.
//!
//! One event gets one binding: of those that fit it, the one that fits closest (see [`Closeness`]). Two that fit an event
//! equally close cannot both be in force, so which one it is never depends on their order. A binding that cannot be read
//! gives way to no other: the events that it could fit are refused.

mod book;
mod check;
mod closeness;
mod conflict;
mod fit;
mod unreadable;

use capstan_protocol::{Binding, BindingId, BindingScope, DeliveryPolicy, Event, Map, ResourcePolicy, StatePolicy};
use serde::Serialize;

pub use book::Bindings;
pub use check::BindingError;
pub(crate) use check::check;
pub use closeness::Closeness;
pub use fit::Misfit;
pub use unreadable::Unreadable;

/// The binding that makes a fresh install work: every event goes to the built-in agent. It is in force until bindings are
/// first changed, and is one of them from then on.
pub fn default_binding() -> Binding {
    Binding {
        binding_id: "default".into(),
        scope: BindingScope::default(),
        event_types: Vec::new(),
        filters: Vec::new(),
        runner_id: "builtin:agent".into(),
        runner_config: Map::new(),
        resource_policy: ResourcePolicy::default(),
        state_policy: StatePolicy::default(),
        delivery_policy: DeliveryPolicy::default(),
        enabled: true,
    }
}

/// Which binding an event would get, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The binding; none means that nothing is done about the event.
    pub binding_id: Option<BindingId>,
    /// Why that one.
    pub reason: String,
    /// The others, and why each is not it.
    pub losers: Vec<Loser>,
}

/// A binding that an event does not get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loser {
    /// The binding.
    pub binding_id: BindingId,
    /// Why not.
    pub reason: String,
}

/// The binding that an event gets.
pub fn resolve<'a>(bindings: &'a [Binding], event: &Event) -> Option<&'a Binding> {
    let fitting = bindings.iter().filter_map(|binding| Some((fit::fit(binding, event).ok()?, binding)));
    fitting.max_by_key(|(closeness, _)| *closeness).map(|(_, binding)| binding)
}

/// The same with the reasons.
pub fn choose(bindings: &[Binding], event: &Event) -> Choice {
    let winner = resolve(bindings, event);
    let closest = winner.and_then(|winner| fit::fit(winner, event).ok());
    let reason = match closest {
        Some(closeness) => format!("it fits closest: {closeness}"),
        None => "no binding fits this event, so nothing is done about it".to_owned(),
    };
    let others = bindings.iter().filter(|binding| winner.is_none_or(|winner| winner.binding_id != binding.binding_id));
    let loser = |binding: &Binding| Loser {
        binding_id: binding.binding_id.clone(),
        reason: match fit::fit(binding, event) {
            Ok(closeness) => format!("it fits, but less closely: {closeness}"),
            Err(misfit) => misfit.to_string(),
        },
    };
    Choice { binding_id: winner.map(|winner| winner.binding_id.clone()), reason, losers: others.map(loser).collect() }
}
