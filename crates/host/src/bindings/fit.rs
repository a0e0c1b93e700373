//! Whether a binding fits an event.

use std::fmt;

use capstan_protocol::{Binding, Event, Filter, WorkspaceId};
use serde_json::Value;

use super::closeness::{Closeness, EventType, NAMES, named};

/// Why a binding does not fit an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// It is not in force.
    Disabled,
    /// It names something else.
    Scope {
        /// Which field of its scope.
        field: &'static str,
        /// What it names.
        wanted: String,
        /// What the event has.
        found: Option<String>,
    },
    /// It takes other event types.
    EventType {
        /// Those it takes.
        wanted: Vec<String>,
        /// The one the event has.
        found: String,
    },
    /// A condition does not hold.
    Filter {
        /// The field it is about.
        field: String,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => write!(f, "it is disabled"),
            Self::Scope { field, wanted, found: Some(found) } => write!(f, "its {field} is {wanted}, not {found}"),
            Self::Scope { field, wanted, found: None } => write!(f, "its {field} is {wanted}, and the event has none"),
            Self::EventType { wanted, found } => write!(f, "it takes {}, not {found}", wanted.join(", ")),
            Self::Filter { field } => write!(f, "its condition on {field} does not hold"),
        }
    }
}

/// How closely a binding fits an event, or why it does not.
pub(super) fn fit(binding: &Binding, event: &Event) -> Result<Closeness, Misfit> {
    if !binding.enabled {
        return Err(Misfit::Disabled);
    }
    for ((field, wanted), found) in NAMES.into_iter().zip(named(&binding.scope)).zip(found(event)) {
        if let Some(wanted) = wanted.filter(|wanted| Some(*wanted) != found) {
            return Err(Misfit::Scope { field, wanted: wanted.to_owned(), found: found.map(str::to_owned) });
        }
    }
    let event_type = closest_type(&binding.event_types, &event.event_type)
        .ok_or_else(|| Misfit::EventType { wanted: binding.event_types.clone(), found: event.event_type.clone() })?;
    if !binding.filters.is_empty() {
        // An event is plain data, which always can be written.
        let told = serde_json::to_value(event).unwrap_or_default();
        if let Some(filter) = binding.filters.iter().find(|filter| !holds(filter, &told)) {
            return Err(Misfit::Filter { field: filter.field.clone() });
        }
    }
    Ok(Closeness::new(binding, event_type))
}

/// What an event has of what scopes name.
fn found(event: &Event) -> [Option<&str>; 6] {
    [
        event.actor.as_ref().map(|actor| actor.id.as_str()),
        event.thread_id.as_deref(),
        event.conversation_id.as_deref(),
        Some(event.source.as_str()),
        event.bot_id.as_deref(),
        event.workspace_id.as_ref().map(WorkspaceId::as_str),
    ]
}

/// How closely the patterns fit a name, if one does.
fn closest_type(patterns: &[String], name: &str) -> Option<EventType> {
    if patterns.is_empty() {
        return Some(EventType::Any);
    }
    patterns.iter().filter_map(|pattern| pattern_fits(pattern, name)).max()
}

fn pattern_fits(pattern: &str, name: &str) -> Option<EventType> {
    match pattern.strip_suffix('*') {
        Some("") => Some(EventType::Any),
        Some(beginning) => name.starts_with(beginning).then_some(EventType::Beginning(beginning.len())),
        None => (pattern == name).then_some(EventType::Exact),
    }
}

fn holds(filter: &Filter, event: &Value) -> bool {
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
