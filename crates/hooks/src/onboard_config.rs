//! Folding what plugins want to have configured.

use std::sync::Arc;

use capstan_protocol::JsonObject;
use serde_json::Value;

use crate::args::{CurrentConfig, OnboardConfigArgs};
use crate::points::OnboardConfig;
use crate::{HookError, HookErrorReason, HookPoint as _, HookRuntime};

impl HookRuntime {
    /// Asks each plugin in the order of registration what it wants configured; each sees what is merged so far.
    ///
    /// Objects are merged key by key, at every depth. An answer that is not an object is a type error.
    pub fn onboard_config(&self, initial: JsonObject) -> Result<JsonObject, HookError> {
        let mut merged = initial;
        for implementation in self.implementations_in_registration_order::<OnboardConfig>() {
            let args = OnboardConfigArgs { current_config: CurrentConfig(Arc::new(merged.clone())) };
            match self.call_implementation_sync(implementation, &args)? {
                None => {}
                Some(Value::Object(fragment)) => merge_config(&mut merged, fragment),
                Some(other) => {
                    let reason = format!("it gave {other}, where an object was expected");
                    let (hook, plugin) = (OnboardConfig::INFO.name, implementation.plugin.clone());
                    return Err(HookError { hook, plugin, reason: HookErrorReason::Error(reason) });
                }
            }
        }
        Ok(merged)
    }
}

fn merge_config(into: &mut JsonObject, fragment: JsonObject) {
    for (key, value) in fragment {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(there)), Value::Object(more)) => merge_config(there, more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}
