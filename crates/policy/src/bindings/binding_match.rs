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
            Self::Scope { field, expected, actual: Some(actual) } => {
                write!(f, "it requires {field} {expected}; the event has {actual}")
            }
            Self::Scope { field, expected, actual: None } => {
                write!(f, "it requires {field} {expected}; the event has none")
            }
            Self::EventType { expected, actual } => {
                write!(f, "it accepts event types {}; the event is {actual}", expected.join(", "))
            }
            Self::Filter { field } => write!(f, "its filter on {field} is not satisfied"),
        }
    }
}

/// Matches a binding against an event; returns the specificity, or the reason for the mismatch.
pub(super) fn match_binding(binding: &Binding, event: &Event) -> Result<BindingSpecificity, BindingMismatch> {
    if !binding.enabled {
        return Err(BindingMismatch::Disabled);
    }
    for ((field, expected), actual) in
        SCOPE_FIELDS.into_iter().zip(scope_values(&binding.scope)).zip(event_scope_values(event))
    {
        if let Some(expected) = expected.filter(|expected| Some(*expected) != actual) {
            return Err(BindingMismatch::Scope {
                field,
                expected: expected.to_owned(),
                actual: actual.map(str::to_owned),
            });
        }
    }
    let event_type = best_event_type_match(&binding.event_types, &event.event_type).ok_or_else(|| {
        BindingMismatch::EventType { expected: binding.event_types.clone(), actual: event.event_type.clone() }
    })?;
    if !binding.filters.is_empty() {
        // An event is plain data: serialization cannot fail.
        let event_json = serde_json::to_value(event).unwrap_or_default();
        if let Some(filter) = binding.filters.iter().find(|filter| !is_filter_satisfied(filter, &event_json)) {
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
fn best_event_type_match(patterns: &[String], event_type: &str) -> Option<EventTypeMatch> {
    if patterns.is_empty() {
        return Some(EventTypeMatch::Any);
    }
    patterns.iter().filter_map(|pattern| match_pattern(pattern, event_type)).max()
}

fn match_pattern(pattern: &str, event_type: &str) -> Option<EventTypeMatch> {
    match pattern.strip_suffix('*') {
        Some("") => Some(EventTypeMatch::Any),
        Some(prefix) => event_type.starts_with(prefix).then_some(EventTypeMatch::Prefix(prefix.len())),
        None => (pattern == event_type).then_some(EventTypeMatch::Exact),
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
