//! Who implements what, in the order of registration.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use capstan_protocol::PluginName;

use crate::error::panic_text;
use crate::{
    Aggregation, Async, AsyncHandler, LoadFailure, Mode, Plugin, Point, PointInfo, Sync, SyncHandler, Trace, points,
};

/// The call of one implementation.
type Call<P> = Arc<
    dyn Fn(&<P as Point>::Args) -> <<P as Point>::Mode as Mode>::Answer<<P as Point>::Output>
        + Send
        + std::marker::Sync,
>;

/// One implementation of a point.
pub(crate) struct Implementation<P: Point> {
    pub(crate) plugin: PluginName,
    pub(crate) arguments: Vec<&'static str>,
    pub(crate) call: Call<P>,
    /// Its failure must not be skipped where others' would be.
    pub(crate) fail_closed: bool,
}

/// What a plugin registers with.
pub struct Registrar {
    plugin: PluginName,
    contributions: Vec<Contribution>,
    traces: Vec<Arc<dyn Trace>>,
    fail_closed: bool,
}

struct Contribution {
    plugin: PluginName,
    point: TypeId,
    name: &'static str,
    arguments: Vec<&'static str>,
    /// An `Implementation<P>` of the point with that type id.
    implementation: Box<dyn Any + Send + std::marker::Sync>,
}

impl Registrar {
    /// Implements a hook point with a function. The function gets the arguments it declares and no others.
    pub fn on<P, Params>(&mut self, _point: P, handler: impl AsyncHandler<P, Params>) -> &mut Self
    where
        P: Point<Mode = Async>,
    {
        let arguments = arguments_of_async(&handler);
        self.add::<P>(arguments, Arc::new(move |args| handler.call(args)))
    }

    /// Implements a synchronous hook point with a function.
    pub fn on_sync<P, Params>(&mut self, _point: P, handler: impl SyncHandler<P, Params>) -> &mut Self
    where
        P: Point<Mode = Sync>,
    {
        let arguments = arguments_of_sync(&handler);
        self.add::<P>(arguments, Arc::new(move |args| handler.call(args)))
    }

    /// From here on, a failure in an interception hook stops the call it intercepts instead of being skipped: what must
    /// not fail open, such as a redactor, says this first.
    pub fn fail_closed(&mut self) -> &mut Self {
        self.fail_closed = true;
        self
    }

    /// Watches every hook call of every plugin.
    pub fn trace(&mut self, trace: Arc<dyn Trace>) -> &mut Self {
        self.traces.push(trace);
        self
    }

    fn add<P: Point>(&mut self, arguments: Vec<&'static str>, call: Call<P>) -> &mut Self {
        let implementation = Implementation::<P> {
            plugin: self.plugin.clone(),
            arguments: arguments.clone(),
            call,
            fail_closed: self.fail_closed,
        };
        self.contributions.push(Contribution {
            plugin: self.plugin.clone(),
            point: TypeId::of::<P>(),
            name: P::INFO.name,
            arguments,
            implementation: Box::new(implementation),
        });
        self
    }
}

fn arguments_of_async<P: Point<Mode = Async>, Params, H: AsyncHandler<P, Params>>(_: &H) -> Vec<&'static str> {
    H::arguments()
}

fn arguments_of_sync<P: Point<Mode = Sync>, Params, H: SyncHandler<P, Params>>(_: &H) -> Vec<&'static str> {
    H::arguments()
}

/// A hook point and who implements it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookListing {
    /// The point.
    pub point: PointInfo,
    /// Its implementors, in the order they run.
    pub implementors: Vec<Implementor>,
}

/// A plugin that implements a hook point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Implementor {
    /// The plugin.
    pub plugin: PluginName,
    /// The arguments it declares.
    pub arguments: Vec<&'static str>,
}

/// Everything that was registered.
#[derive(Default)]
pub struct Registry {
    plugins: Vec<PluginName>,
    failures: Vec<LoadFailure>,
    contributions: HashMap<TypeId, Vec<Contribution>>,
    pub(crate) traces: Vec<Arc<dyn Trace>>,
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
            Registrar { plugin: name.clone(), contributions: Vec::new(), traces: Vec::new(), fail_closed: false };
        let loaded = if self.plugins.contains(&name) {
            Err("a plugin of this name is registered already".to_owned())
        } else {
            match catch_unwind(AssertUnwindSafe(|| plugin.register(&mut registrar))) {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(panic) => Err(format!("it panicked: {}", panic_text(panic.as_ref()))),
            }
        };
        match loaded {
            Ok(()) => {
                self.plugins.push(name);
                self.traces.append(&mut registrar.traces);
                for contribution in registrar.contributions {
                    self.contributions.entry(contribution.point).or_default().push(contribution);
                }
            }
            Err(reason) => self.report(LoadFailure { plugin: name, reason }),
        }
    }

    /// Notes a plugin that did not load.
    pub fn report(&mut self, failure: LoadFailure) {
        tracing::warn!(plugin = %failure.plugin, reason = %failure.reason, "plugin did not load");
        self.failures.push(failure);
    }

    /// The plugins that did not load.
    pub fn failures(&self) -> &[LoadFailure] {
        &self.failures
    }

    /// The plugins in the order they run: the last registered first.
    pub fn running_order(&self) -> impl Iterator<Item = &PluginName> {
        self.plugins.iter().rev()
    }

    /// Every hook point with its implementors in the order they run.
    pub fn listing(&self) -> Vec<HookListing> {
        points::ALL.iter().map(|point| HookListing { point: *point, implementors: self.implementors(*point) }).collect()
    }

    fn implementors(&self, point: PointInfo) -> Vec<Implementor> {
        let all = self.contributions.values().find(|all| all.iter().any(|one| one.name == point.name));
        let listed = all
            .into_iter()
            .flatten()
            .map(|one| Implementor { plugin: one.plugin.clone(), arguments: one.arguments.clone() });
        if point.aggregation == Aggregation::Folded { listed.collect() } else { listed.rev().collect() }
    }

    /// The implementations of a point in the order they run.
    pub(crate) fn implementations<P: Point>(&self) -> impl Iterator<Item = &Implementation<P>> {
        let contributions = self.contributions.get(&TypeId::of::<P>()).map(Vec::as_slice).unwrap_or_default();
        contributions.iter().rev().filter_map(|one| one.implementation.downcast_ref())
    }
}
