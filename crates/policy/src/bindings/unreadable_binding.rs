//! Stored bindings that cannot be parsed: written by another version, or damaged.

use capstan_protocol::{Binding, BindingId, Event};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{binding_match, default_binding};

/// Stored binding that cannot be parsed. It may have restricted what a run may do, so the events it could match go to no
/// other binding: they are refused until it is replaced or removed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnreadableBinding {
    /// Id of the binding.
    pub binding_id: BindingId,
    /// Parse error.
    pub reason: String,
    /// The readable parts of the binding; an unreadable part matches everything.
    #[serde(skip)]
    widest: Box<Binding>,
}

impl UnreadableBinding {
    pub(super) fn new(binding_id: BindingId, value: &Value, reason: String) -> Self {
        let widest = Binding {
            scope: parse_part(value, "scope"),
            event_types: parse_part(value, "event_types"),
            filters: parse_part(value, "filters"),
            enabled: value["enabled"] != Value::Bool(false),
            ..default_binding()
        };
        Self { binding_id, reason, widest: Box::new(widest) }
    }

    /// Returns true if the binding could match an event.
    pub(super) fn can_match(&self, event: &Event) -> bool {
        binding_match::match_binding(&self.widest, event).is_ok()
    }
}

/// Part of a stored binding, or its default where the part is missing or unreadable.
fn parse_part<T: DeserializeOwned + Default>(value: &Value, name: &str) -> T {
    value.get(name).and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use capstan_protocol::Event;
    use serde_json::{Value, json};

    use super::UnreadableBinding;

    #[test]
    fn g02_an_unreadable_binding_could_match_every_event_it_does_not_exclude() {
        let could_fit = |value: Value| {
            UnreadableBinding::new("b".into(), &value, String::new()).can_match(&Event::message("cli", "1", "hello"))
        };
        for (fits, value) in [
            (true, json!({"colour": "blue"})),
            (true, json!("nonsense")),
            (true, json!({"colour": "blue", "scope": {"channel": "cli"}})),
            (false, json!({"colour": "blue", "scope": {"channel": "phone"}})),
            (true, json!({"scope": {"channel": "phone", "colour": "blue"}})),
            (false, json!({"colour": "blue", "event_types": ["group.*"]})),
            (true, json!({"event_types": "group.*"})),
            (false, json!({"colour": "blue", "filters": [{"field": "input.text", "contains": "bye"}]})),
            (true, json!({"filters": [{"field": "input.text", "contains": "bye", "colour": "blue"}]})),
            (false, json!({"colour": "blue", "enabled": false})),
            (true, json!({"enabled": "no"})),
        ] {
            assert_eq!(could_fit(value.clone()), fits, "{value}");
        }
    }
}
