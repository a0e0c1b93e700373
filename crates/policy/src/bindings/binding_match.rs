//! Matching of a binding against an event.

use std::fmt;

use capstan_protocol::{Binding, Event, EventFilter, WorkspaceId};
use serde_json::Value;

use super::specificity::{BindingSpecificity, EventTypeMatch, SCOPE_FIELDS, scope_values};

/// Reason why a binding does not match an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindingMismatch {
    /// The binding is disabled.
    Disabled,
    /// A field of its scope differs.
    Scope {
        /// Name of the scope field.
        field: &'static str,
        /// Value in the scope.
        expected: String,
        /// Value in the event.
        actual: Option<String>,
    },
    /// The event type matches none of its patterns.
    EventType {
        /// Patterns of the binding.
        expected: Vec<String>,
        /// Type of the event.
        actual: String,
    },
    /// A filter is not satisfied.
    Filter {
        /// Field of the filter.
        field: String,
    },
}

impl fmt::Display for BindingMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => write!(f, "it is disabled"),
            Self::Scope { field, expected: wanted, actual: Some(found) } => {
                write!(f, "its {field} is {wanted}, not {found}")
            }
            Self::Scope { field, expected: wanted, actual: None } => {
                write!(f, "its {field} is {wanted}, and the event has none")
            }
            Self::EventType { expected: wanted, actual: found } => {
                write!(f, "it takes {}, not {found}", wanted.join(", "))
            }
            Self::Filter { field } => write!(f, "its condition on {field} does not hold"),
        }
    }
}

/// Specificity of the match of a binding with an event, or the reason for a mismatch.
pub(super) fn match_binding(binding: &Binding, event: &Event) -> Result<BindingSpecificity, BindingMismatch> {
    if !binding.enabled {
        return Err(BindingMismatch::Disabled);
    }
    for ((field, wanted), found) in
        SCOPE_FIELDS.into_iter().zip(scope_values(&binding.scope)).zip(event_scope_values(event))
    {
        if let Some(wanted) = wanted.filter(|wanted| Some(*wanted) != found) {
            return Err(BindingMismatch::Scope {
                field,
                expected: wanted.to_owned(),
                actual: found.map(str::to_owned),
            });
        }
    }
    let event_type = best_event_type_match(&binding.event_types, &event.event_type).ok_or_else(|| {
        BindingMismatch::EventType { expected: binding.event_types.clone(), actual: event.event_type.clone() }
    })?;
    if !binding.filters.is_empty() {
        // An event is plain data: serialization cannot fail.
        let told = serde_json::to_value(event).unwrap_or_default();
        if let Some(filter) = binding.filters.iter().find(|filter| !is_filter_satisfied(filter, &told)) {
            return Err(BindingMismatch::Filter { field: filter.field.clone() });
        }
    }
    Ok(BindingSpecificity::new(binding, event_type))
}

/// Values of an event in the order of [`SCOPE_FIELDS`].
fn event_scope_values(event: &Event) -> [Option<&str>; 6] {
    [
        event.actor.as_ref().map(|actor| actor.id.as_str()),
        event.thread_id.as_deref(),
        event.conversation_id.as_deref(),
        Some(event.source.as_str()),
        event.bot_id.as_deref(),
        event.workspace_id.as_ref().map(WorkspaceId::as_str),
    ]
}

/// Best match of the patterns with an event type.
fn best_event_type_match(patterns: &[String], name: &str) -> Option<EventTypeMatch> {
    if patterns.is_empty() {
        return Some(EventTypeMatch::Any);
    }
    patterns.iter().filter_map(|pattern| match_pattern(pattern, name)).max()
}

fn match_pattern(pattern: &str, name: &str) -> Option<EventTypeMatch> {
    match pattern.strip_suffix('*') {
        Some("") => Some(EventTypeMatch::Any),
        Some(beginning) => name.starts_with(beginning).then_some(EventTypeMatch::Prefix(beginning.len())),
        None => (pattern == name).then_some(EventTypeMatch::Exact),
    }
}

fn is_filter_satisfied(filter: &EventFilter, event: &Value) -> bool {
    let value = filter.field.split('.').try_fold(event, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        value => value.get(part),
    });
    let value = value.filter(|value| !value.is_null());
    filter.exists.is_none_or(|exists| exists == value.is_some())
        && (filter.one_of.is_empty() || value.is_some_and(|value| filter.one_of.contains(value)))
        && filter
            .contains
            .as_ref()
            .is_none_or(|text| value.and_then(Value::as_str).is_some_and(|value| value.contains(text)))
}
