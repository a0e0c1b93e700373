//! Registry of plugins and their hook implementations, in the order of registration.

use std::any::TypeId;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use capstan_protocol::PluginName;

use crate::error::panic_message;
use crate::registrar::{HookContribution, HookImplementation};
use crate::{
    HookAggregation, HookPoint, HookPointInfo, HookRegistrar, HookTracer, Plugin, PluginIdentity, PluginLoadFailure,
    points,
};

/// Hook point with its implementors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookListing {
    /// The point.
    pub point: HookPointInfo,
    /// Implementors in call order.
    pub implementors: Vec<HookImplementor>,
}

/// A plugin that implements a hook point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookImplementor {
    /// The plugin.
    pub plugin: PluginName,
    /// The arguments it declares.
    pub arguments: Vec<&'static str>,
}

/// Registered plugins and their contributions.
#[derive(Default)]
pub struct Registry {
    plugins: Vec<PluginIdentity>,
    load_failures: Vec<PluginLoadFailure>,
    contributions: HashMap<TypeId, Vec<HookContribution>>,
    pub(crate) tracers: Vec<Arc<dyn HookTracer>>,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a plugin. A plugin that fails, panics or repeats a name is recorded as a load failure and contributes
    /// nothing.
    pub fn register(&mut self, plugin: &dyn Plugin) {
        self.register_as(plugin, false);
    }

    /// Registers a plugin of the host itself. Its runners may have ids that begin with `builtin:`, and its tools get the
    /// permissions that they declare.
    pub fn register_builtin(&mut self, plugin: &dyn Plugin) {
        self.register_as(plugin, true);
    }

    fn register_as(&mut self, plugin: &dyn Plugin, is_builtin: bool) {
        let name = PluginName::new(plugin.name());
        let mut registrar = HookRegistrar::new(name.clone());
        let loaded = if self.identity(&name).is_some() {
            Err("a plugin with this name is already registered".to_owned())
        } else {
            match catch_unwind(AssertUnwindSafe(|| plugin.register(&mut registrar))) {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(panic) => Err(format!("it panicked: {}", panic_message(panic.as_ref()))),
            }
        };
        match loaded {
            Ok(()) => {
                self.plugins.push(PluginIdentity { name, author: plugin.author().to_owned(), is_builtin });
                self.tracers.append(&mut registrar.tracers);
                for contribution in registrar.contributions {
                    self.contributions.entry(contribution.point).or_default().push(contribution);
                }
            }
            Err(reason) => self.record_load_failure(PluginLoadFailure { plugin: name, reason }),
        }
    }

    /// Records a plugin that did not load.
    pub fn record_load_failure(&mut self, failure: PluginLoadFailure) {
        tracing::warn!(plugin = %failure.plugin, reason = %failure.reason, "plugin did not load");
        self.load_failures.push(failure);
    }

    /// Plugins that did not load.
    pub fn load_failures(&self) -> &[PluginLoadFailure] {
        &self.load_failures
    }

    /// Plugins in call order: the last registered first.
    pub fn plugins_in_call_order(&self) -> impl Iterator<Item = &PluginName> {
        self.plugins.iter().rev().map(|plugin| &plugin.name)
    }

    /// Identities of the plugins, in the order of registration.
    pub fn identities(&self) -> &[PluginIdentity] {
        &self.plugins
    }

    /// Identity of a plugin.
    pub fn identity(&self, name: &PluginName) -> Option<&PluginIdentity> {
        self.plugins.iter().find(|plugin| plugin.name == *name)
    }

    /// Every hook point with its implementors.
    pub fn hook_listings(&self) -> Vec<HookListing> {
        points::HOOK_POINTS
            .iter()
            .map(|point| HookListing { point: *point, implementors: self.implementors(*point) })
            .collect()
    }

    fn implementors(&self, point: HookPointInfo) -> Vec<HookImplementor> {
        let contributions = self.contributions.values().find(|list| list.iter().any(|entry| entry.name == point.name));
        let implementors = contributions
            .into_iter()
            .flatten()
            .map(|entry| HookImplementor { plugin: entry.plugin.clone(), arguments: entry.arguments.clone() });
        if point.aggregation == HookAggregation::Folded { implementors.collect() } else { implementors.rev().collect() }
    }

    /// Implementations of a point in call order.
    pub(crate) fn implementations<P: HookPoint>(&self) -> impl Iterator<Item = &HookImplementation<P>> {
        let contributions = self.contributions.get(&TypeId::of::<P>()).map(Vec::as_slice).unwrap_or_default();
        contributions.iter().rev().filter_map(|entry| entry.implementation.downcast_ref())
    }
}
