//! Configuration that plugins propose when a user sets the host up.

use std::sync::Arc;

use capstan_protocol::JsonObject;
use serde_json::Value;

use crate::args::{CurrentConfig, OnboardConfigArgs};
use crate::points::OnboardConfig;
use crate::registrar::HookImplementation;
use crate::{HookError, HookErrorReason, HookPoint as _, HookRuntime};

/// Merges the configuration fragments of all plugins into `initial`, in the order of registration. Each plugin sees the
/// fragments of the plugins before it.
///
/// Objects are merged key by key, at every depth. A fragment that is not an object is a failure of its plugin.
pub fn merge_onboard_config(hooks: &HookRuntime, initial: JsonObject) -> Result<JsonObject, HookError> {
    let mut merged = initial;
    let mut implementations: Vec<&HookImplementation<OnboardConfig>> = hooks.registry().implementations().collect();
    implementations.reverse();
    for implementation in implementations {
        let args = OnboardConfigArgs { current_config: CurrentConfig(Arc::new(merged.clone())) };
        match hooks.call_implementation_sync(implementation, &args)? {
            None => {}
            Some(Value::Object(fragment)) => merge_fragment(&mut merged, fragment),
            Some(other) => {
                let reason = HookErrorReason::Error(format!("it returned {other} instead of an object"));
                let (hook, plugin) = (OnboardConfig::INFO.name, implementation.plugin.clone());
                return Err(HookError { hook, plugin, reason });
            }
        }
    }
    Ok(merged)
}

fn merge_fragment(config: &mut JsonObject, fragment: JsonObject) {
    for (key, value) in fragment {
        match (config.get_mut(&key), value) {
            (Some(Value::Object(object)), Value::Object(nested)) => merge_fragment(object, nested),
            (_, value) => {
                config.insert(key, value);
            }
        }
    }
}
