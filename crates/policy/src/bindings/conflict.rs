//! Conflicts between bindings that cannot both be enabled.

use std::collections::BTreeSet;

use capstan_protocol::{Binding, EventFilter};

use super::specificity::{count_conditions, scope_values};

/// Event type for which two bindings would match an event with equal specificity, if there is one.
///
/// Scopes that name different fields are never equally specific, and scopes that name the same fields match the same event
/// only with the same values. Of two patterns only equal ones match a name with equal specificity.
pub(super) fn ambiguous_event_type(a: &Binding, b: &Binding) -> Option<String> {
    let has_same_scope = scope_values(&a.scope) == scope_values(&b.scope);
    if !a.enabled
        || !b.enabled
        || !has_same_scope
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

/// Returns true if no event can satisfy the filters of both.
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
