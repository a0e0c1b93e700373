//! Which binding an event gets.

use capstan_protocol::{Binding, BindingScope, DeliveryPolicy, Map, ResourcePolicy, StatePolicy};

/// The binding that makes a fresh install work: every event goes to the built-in agent.
pub fn default_binding() -> Binding {
    Binding {
        binding_id: "default".into(),
        scope: BindingScope::default(),
        event_types: Vec::new(),
        runner_id: "builtin:agent".into(),
        runner_config: Map::new(),
        resource_policy: ResourcePolicy::default(),
        state_policy: StatePolicy::default(),
        delivery_policy: DeliveryPolicy::default(),
        enabled: true,
    }
}
