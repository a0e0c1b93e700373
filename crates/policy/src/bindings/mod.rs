//! Resolution, validation and storage of bindings.
//!
//! An event gets one binding: the most specific of those that match it (see [`BindingSpecificity`]). Two bindings that
//! would match an event with equal specificity cannot both be enabled, so the result never depends on their order. Events
//! that an unreadable binding could match are refused.

mod binding_match;
mod binding_store;
mod binding_validation;
mod conflict;
mod runner_config;
mod specificity;
mod unreadable_binding;

use capstan_protocol::{
    Binding, BindingId, BindingScope, DeliveryPolicy, Event, JsonObject, ResourcePolicy, StatePolicy,
};
use serde::Serialize;

pub use binding_match::BindingMismatch;
pub use binding_store::BindingStore;
pub use binding_validation::{BindingError, check_runner, find_misfit, validate_binding};
pub use runner_config::{LIMIT_KEYWORD, RESOURCE_KEYWORD, RunnerConfigValidator, step_limit};
pub use specificity::BindingSpecificity;
pub use unreadable_binding::UnreadableBinding;

/// Prefix of the id of a binding that came with a LangBot query and is stored nowhere else.
pub const PIPELINE_BINDING_PREFIX: &str = "pipeline:";

/// Returns true if the id is that of a binding that came with a LangBot query.
pub fn is_pipeline_binding(binding_id: &str) -> bool {
    binding_id.starts_with(PIPELINE_BINDING_PREFIX)
}

/// Binding of a fresh installation: every event goes to the built-in agent. It applies while no binding is stored; the
/// first change stores it along with the changed binding.
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
        timeout_seconds: None,
        enabled: true,
    }
}

/// Explanation of the binding that an event gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingChoice {
    /// The binding; `None` when the event is not served.
    pub binding_id: Option<BindingId>,
    /// Reason for the choice.
    pub reason: String,
    /// The other bindings, each with its reason. The name on the wire is historical.
    #[serde(rename = "losers")]
    pub rejected: Vec<RejectedBinding>,
}

/// Binding that was not chosen for an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RejectedBinding {
    /// The binding.
    pub binding_id: BindingId,
    /// Reason for the rejection.
    pub reason: String,
}

/// Resolves the binding of an event.
pub fn resolve_binding<'a>(bindings: &'a [Binding], event: &Event) -> Option<&'a Binding> {
    let matches =
        bindings.iter().filter_map(|binding| Some((binding_match::match_binding(binding, event).ok()?, binding)));
    matches.max_by_key(|(specificity, _)| *specificity).map(|(_, binding)| binding)
}

/// Resolves the binding of an event and explains the choice.
pub fn explain_choice(bindings: &[Binding], event: &Event) -> BindingChoice {
    let chosen = resolve_binding(bindings, event);
    let match_of_chosen = chosen.and_then(|chosen| binding_match::match_binding(chosen, event).ok());
    let reason = match match_of_chosen {
        Some(specificity) => format!("most specific match: {specificity}"),
        None => "no binding matches this event; it is not served".to_owned(),
    };
    let others = bindings.iter().filter(|binding| chosen.is_none_or(|chosen| chosen.binding_id != binding.binding_id));
    let reject = |binding: &Binding| RejectedBinding {
        binding_id: binding.binding_id.clone(),
        reason: match binding_match::match_binding(binding, event) {
            Ok(specificity) => format!("matches, but is less specific: {specificity}"),
            Err(mismatch) => mismatch.to_string(),
        },
    };
    BindingChoice {
        binding_id: chosen.map(|chosen| chosen.binding_id.clone()),
        reason,
        rejected: others.map(reject).collect(),
    }
}
