//! Bindings that cannot both be in force.

use std::collections::BTreeSet;

use capstan_protocol::{Binding, EventFilter};

use super::specificity::{count_conditions, scope_values};

/// The event type for which an event could get either of two bindings, if there is one.
///
/// Scopes that name different fields never fit equally close, and scopes that name the same fields fit the same event only
/// if they name the same things. Of patterns only equal ones fit the same name equally close.
pub(super) fn ambiguous_event_type(a: &Binding, b: &Binding) -> Option<String> {
    let is_same_place = scope_values(&a.scope) == scope_values(&b.scope);
    if !a.enabled
        || !b.enabled
        || !is_same_place
        || count_conditions(a) != count_conditions(b)
        || are_exclusive(&a.filters, &b.filters)
    {
        return None;
    }
    let types = |binding: &Binding| -> BTreeSet<String> {
        match binding.event_types.as_slice() {
            [] => BTreeSet::from(["*".to_owned()]),
            types => types.iter().cloned().collect(),
        }
    };
    types(a).intersection(&types(b)).next().cloned()
}

/// Whether no event can meet the conditions of both.
fn are_exclusive(a: &[EventFilter], b: &[EventFilter]) -> bool {
    a.iter().any(|one| b.iter().any(|other| one.field == other.field && is_contradiction(one, other)))
}

fn is_contradiction(a: &EventFilter, b: &EventFilter) -> bool {
    let values_differ =
        !a.one_of.is_empty() && !b.one_of.is_empty() && !a.one_of.iter().any(|value| b.one_of.contains(value));
    let needs =
        |filter: &EventFilter| filter.exists == Some(true) || !filter.one_of.is_empty() || filter.contains.is_some();
    let forbids = |filter: &EventFilter| filter.exists == Some(false);
    values_differ || needs(a) && forbids(b) || forbids(a) && needs(b)
}
