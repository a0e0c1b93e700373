//! Bindings that cannot be read: another version kept them, or they are damaged.

use capstan_protocol::{Binding, BindingId, Event};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{binding_match, default_binding};

/// A binding that cannot be read. It may have cut what a run may do, so that no other serves the events it could fit: they
/// are refused until it is set anew or removed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnreadableBinding {
    /// The binding.
    pub binding_id: BindingId,
    /// What is wrong with it.
    pub reason: String,
    /// What it applies to, as far as that can be told: what cannot is as wide as it may be.
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

    /// Whether an event could be meant for it.
    pub(super) fn can_match(&self, event: &Event) -> bool {
        binding_match::match_binding(&self.widest, event).is_ok()
    }
}

/// A part of a binding, or what it is where the binding says nothing of it.
fn parse_part<T: DeserializeOwned + Default>(value: &Value, name: &str) -> T {
    value.get(name).and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use capstan_protocol::Event;
    use serde_json::{Value, json};

    use super::UnreadableBinding;

    #[test]
    fn g02_a_binding_that_cannot_be_read_could_fit_whatever_it_does_not_clearly_leave_out() {
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
