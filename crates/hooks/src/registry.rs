//! Registry of plugins and their hook implementations, in the order of registration.

use std::any::TypeId;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use capstan_protocol::PluginName;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};

use crate::error::panic_message;
use crate::registrar::{HookContribution, HookImplementation, StopHandler};
use crate::{
    HookAggregation, HookPoint, HookPointInfo, HookTracer, Plugin, PluginConfig, PluginGrant, PluginIdentity,
    PluginLoadFailure, PluginRegistration, points,
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
    grants: Vec<PluginGrant>,
    load_failures: Vec<PluginLoadFailure>,
    contributions: HashMap<TypeId, Vec<HookContribution>>,
    pub(crate) tracers: Vec<Arc<dyn HookTracer>>,
    stop_handlers: Vec<StopHandler>,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a plugin. A plugin that fails, panics or repeats a name is recorded as a load failure and contributes
    /// nothing.
    pub fn register(&mut self, plugin: &dyn Plugin) {
        self.add(&PluginRegistration::register(plugin, Ok(PluginConfig::default())));
    }

    /// Registers a plugin of the host itself. Its runners may have ids that begin with `builtin:`, and its tools get the
    /// permissions that they declare.
    pub fn register_builtin(&mut self, plugin: &dyn Plugin) {
        self.add(&PluginRegistration::register_builtin(plugin));
    }

    /// Adds a registered plugin. If its registration failed or its name is taken, a load failure is recorded, and logged once.
    pub fn add(&mut self, registration: &PluginRegistration) {
        let identity = registration.identity();
        let contributions = if self.identity(&identity.name).is_some() {
            Err("a plugin with this name is already registered")
        } else {
            registration.contributions()
        };
        match contributions {
            Ok(contributions) => {
                self.plugins.push(identity.clone());
                self.grants.push(contributions.grant.as_ref().clone());
                self.tracers.extend(contributions.tracers.iter().cloned());
                self.stop_handlers.extend(contributions.stop_handlers.iter().cloned());
                for contribution in &contributions.implementations {
                    self.contributions.entry(contribution.point).or_default().push(contribution.clone());
                }
            }
            Err(reason) => {
                registration.log_failure(reason);
                let failure = PluginLoadFailure { plugin: identity.name.clone(), reason: reason.to_owned() };
                self.load_failures.push(failure);
            }
        }
    }

    /// Plugins that did not load.
    pub fn load_failures(&self) -> &[PluginLoadFailure] {
        &self.load_failures
    }

    /// Plugins, the last registered first.
    pub fn plugins_by_priority(&self) -> impl Iterator<Item = &PluginName> {
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

    /// Authority of the hooks of each plugin, in the order of registration.
    pub fn grants(&self) -> &[PluginGrant] {
        &self.grants
    }

    /// Ends what the plugins have started, all at the same time. A handler that panics is logged.
    pub async fn stop_plugins(&self) {
        let stop = |handler: &StopHandler| {
            let handler = Arc::clone(handler);
            let stopping = async move {
                if let Err(panic) = AssertUnwindSafe(async { handler().await }).catch_unwind().await {
                    tracing::warn!(reason = panic_message(panic.as_ref()), "a plugin panicked while it stopped");
                }
            };
            stopping.boxed()
        };
        let stopping: Vec<BoxFuture<'static, ()>> = self.stop_handlers.iter().map(stop).collect();
        join_all(stopping).await;
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

    /// Implementations of a point, the last registered first. That is the call order, except of folded hooks, which reverse
    /// it.
    pub(crate) fn implementations<P: HookPoint>(&self) -> impl Iterator<Item = &HookImplementation<P>> {
        let contributions = self.contributions.get(&TypeId::of::<P>()).map(Vec::as_slice).unwrap_or_default();
        contributions.iter().rev().filter_map(|entry| entry.implementation.downcast_ref())
    }
}
