//! Folding what plugins want to have configured.

use std::sync::Arc;

use capstan_protocol::Map;
use serde_json::Value;

use crate::args::{CurrentConfig, OnboardConfigArgs};
use crate::points::OnboardConfig;
use crate::{HookFailure, HookRuntime, Point as _, Reason};

impl HookRuntime {
    /// Asks each plugin in the order of registration what it wants configured; each sees what is merged so far.
    ///
    /// Objects are merged key by key, at every depth. An answer that is not an object is a type error.
    pub fn onboard_config(&self, initial: Map) -> Result<Map, HookFailure> {
        let mut merged = initial;
        for implementation in self.in_registration_order::<OnboardConfig>() {
            let args = OnboardConfigArgs { current_config: CurrentConfig(Arc::new(merged.clone())) };
            match self.call_sync(implementation, &args)? {
                None => {}
                Some(Value::Object(fragment)) => merge(&mut merged, fragment),
                Some(other) => {
                    let reason = format!("it gave {other}, where an object was expected");
                    let (hook, plugin) = (OnboardConfig::INFO.name, implementation.plugin.clone());
                    return Err(HookFailure { hook, plugin, reason: Reason::Error(reason) });
                }
            }
        }
        Ok(merged)
    }
}

fn merge(into: &mut Map, fragment: Map) {
    for (key, value) in fragment {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(there)), Value::Object(more)) => merge(there, more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}
