//! Who implements what, in the order of registration.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use capstan_protocol::PluginName;

use crate::error::panic_message;
use crate::{
    AsyncHandler, AsyncMode, HookAggregation, HookMode, HookPoint, HookPointInfo, HookTracer, Plugin,
    PluginLoadFailure, SyncHandler, SyncMode, points,
};

/// The call of one implementation.
type HookCall<P> = Arc<
    dyn Fn(&<P as HookPoint>::Args) -> <<P as HookPoint>::Mode as HookMode>::CallResult<<P as HookPoint>::Output>
        + Send
        + std::marker::Sync,
>;

/// One implementation of a point.
pub(crate) struct HookImplementation<P: HookPoint> {
    pub(crate) plugin: PluginName,
    pub(crate) arguments: Vec<&'static str>,
    pub(crate) call: HookCall<P>,
    /// Its failure must not be skipped where others' would be.
    pub(crate) fail_closed: bool,
}

/// What a plugin registers with.
pub struct HookRegistrar {
    plugin: PluginName,
    contributions: Vec<HookContribution>,
    tracers: Vec<Arc<dyn HookTracer>>,
    fail_closed: bool,
}

struct HookContribution {
    plugin: PluginName,
    point: TypeId,
    name: &'static str,
    arguments: Vec<&'static str>,
    /// An `Implementation<P>` of the point with that type id.
    implementation: Box<dyn Any + Send + std::marker::Sync>,
}

impl HookRegistrar {
    /// Implements a hook point with a function. The function gets the arguments it declares and no others.
    pub fn on<P, Params>(&mut self, _point: P, handler: impl AsyncHandler<P, Params>) -> &mut Self
    where
        P: HookPoint<Mode = AsyncMode>,
    {
        let arguments = async_argument_names(&handler);
        self.add_implementation::<P>(arguments, Arc::new(move |args| handler.call(args)))
    }

    /// Implements a synchronous hook point with a function.
    pub fn on_sync<P, Params>(&mut self, _point: P, handler: impl SyncHandler<P, Params>) -> &mut Self
    where
        P: HookPoint<Mode = SyncMode>,
    {
        let arguments = sync_argument_names(&handler);
        self.add_implementation::<P>(arguments, Arc::new(move |args| handler.call(args)))
    }

    /// From here on, a failure in an interception hook stops the call it intercepts instead of being skipped: what must
    /// not fail open, such as a redactor, says this first.
    pub fn fail_closed(&mut self) -> &mut Self {
        self.fail_closed = true;
        self
    }

    /// Watches every hook call of every plugin.
    pub fn add_tracer(&mut self, trace: Arc<dyn HookTracer>) -> &mut Self {
        self.tracers.push(trace);
        self
    }

    fn add_implementation<P: HookPoint>(&mut self, arguments: Vec<&'static str>, call: HookCall<P>) -> &mut Self {
        let implementation = HookImplementation::<P> {
            plugin: self.plugin.clone(),
            arguments: arguments.clone(),
            call,
            fail_closed: self.fail_closed,
        };
        self.contributions.push(HookContribution {
            plugin: self.plugin.clone(),
            point: TypeId::of::<P>(),
            name: P::INFO.name,
            arguments,
            implementation: Box::new(implementation),
        });
        self
    }
}

fn async_argument_names<P: HookPoint<Mode = AsyncMode>, Params, H: AsyncHandler<P, Params>>(
    _: &H,
) -> Vec<&'static str> {
    H::argument_names()
}

fn sync_argument_names<P: HookPoint<Mode = SyncMode>, Params, H: SyncHandler<P, Params>>(_: &H) -> Vec<&'static str> {
    H::argument_names()
}

/// A hook point and who implements it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookListing {
    /// The point.
    pub point: HookPointInfo,
    /// Its implementors, in the order they run.
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

/// Everything that was registered.
#[derive(Default)]
pub struct Registry {
    plugins: Vec<PluginName>,
    load_failures: Vec<PluginLoadFailure>,
    contributions: HashMap<TypeId, Vec<HookContribution>>,
    pub(crate) tracers: Vec<Arc<dyn HookTracer>>,
}

impl Registry {
    /// Nothing registered yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a plugin. One that fails, panics or repeats a name is reported and contributes nothing.
    pub fn register(&mut self, plugin: &dyn Plugin) {
        let name = PluginName::new(plugin.name());
        let mut registrar =
            HookRegistrar { plugin: name.clone(), contributions: Vec::new(), tracers: Vec::new(), fail_closed: false };
        let loaded = if self.plugins.contains(&name) {
            Err("a plugin of this name is registered already".to_owned())
        } else {
            match catch_unwind(AssertUnwindSafe(|| plugin.register(&mut registrar))) {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(panic) => Err(format!("it panicked: {}", panic_message(panic.as_ref()))),
            }
        };
        match loaded {
            Ok(()) => {
                self.plugins.push(name);
                self.tracers.append(&mut registrar.tracers);
                for contribution in registrar.contributions {
                    self.contributions.entry(contribution.point).or_default().push(contribution);
                }
            }
            Err(reason) => self.record_load_failure(PluginLoadFailure { plugin: name, reason }),
        }
    }

    /// Notes a plugin that did not load.
    pub fn record_load_failure(&mut self, failure: PluginLoadFailure) {
        tracing::warn!(plugin = %failure.plugin, reason = %failure.reason, "plugin did not load");
        self.load_failures.push(failure);
    }

    /// The plugins that did not load.
    pub fn load_failures(&self) -> &[PluginLoadFailure] {
        &self.load_failures
    }

    /// The plugins in the order they run: the last registered first.
    pub fn plugins_in_call_order(&self) -> impl Iterator<Item = &PluginName> {
        self.plugins.iter().rev()
    }

    /// Every hook point with its implementors in the order they run.
    pub fn hook_listings(&self) -> Vec<HookListing> {
        points::HOOK_POINTS
            .iter()
            .map(|point| HookListing { point: *point, implementors: self.implementors(*point) })
            .collect()
    }

    fn implementors(&self, point: HookPointInfo) -> Vec<HookImplementor> {
        let all = self.contributions.values().find(|all| all.iter().any(|one| one.name == point.name));
        let listed = all
            .into_iter()
            .flatten()
            .map(|one| HookImplementor { plugin: one.plugin.clone(), arguments: one.arguments.clone() });
        if point.aggregation == HookAggregation::Folded { listed.collect() } else { listed.rev().collect() }
    }

    /// The implementations of a point in the order they run.
    pub(crate) fn implementations<P: HookPoint>(&self) -> impl Iterator<Item = &HookImplementation<P>> {
        let contributions = self.contributions.get(&TypeId::of::<P>()).map(Vec::as_slice).unwrap_or_default();
        contributions.iter().rev().filter_map(|one| one.implementation.downcast_ref())
    }
}
