//! Registrar: collects the contributions of one plugin while it registers.

use std::any::{Any, TypeId};
use std::sync::Arc;

use capstan_protocol::{JsonObject, PluginName};
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    AsyncHandler, AsyncMode, BoxError, HookMode, HookPermissions, HookPoint, HookResult, HookTracer, PluginGrant,
    RemoteArguments, RemoteHookCall, SyncHandler, SyncMode,
};

/// Call of one implementation.
type HookCall<P> = Arc<
    dyn Fn(&<P as HookPoint>::Args) -> <<P as HookPoint>::Mode as HookMode>::CallResult<<P as HookPoint>::Output>
        + Send
        + Sync,
>;

/// One implementation of a point.
pub(crate) struct HookImplementation<P: HookPoint> {
    pub(crate) plugin: PluginName,
    pub(crate) arguments: Vec<&'static str>,
    pub(crate) call: HookCall<P>,
    /// A failure stops the intercepted call instead of being skipped.
    pub(crate) fail_closed: bool,
}

/// One implementation with the type of its point erased.
#[derive(Clone)]
pub(crate) struct HookContribution {
    pub(crate) plugin: PluginName,
    pub(crate) point: TypeId,
    pub(crate) name: &'static str,
    pub(crate) arguments: Vec<&'static str>,
    /// A [`HookImplementation`] of the point with that type id.
    pub(crate) implementation: Arc<dyn Any + Send + Sync>,
}

/// Function that ends what a plugin has started.
pub(crate) type StopHandler = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Passed to a plugin to register its contributions.
pub struct HookRegistrar {
    grant: Arc<PluginGrant>,
    pub(crate) contributions: Vec<HookContribution>,
    pub(crate) tracers: Vec<Arc<dyn HookTracer>>,
    pub(crate) stop_handlers: Vec<StopHandler>,
    fail_closed: bool,
    config: JsonObject,
}

impl HookRegistrar {
    pub(crate) fn new(grant: Arc<PluginGrant>, config: JsonObject) -> Self {
        Self {
            grant,
            contributions: Vec::new(),
            tracers: Vec::new(),
            stop_handlers: Vec::new(),
            fail_closed: false,
            config,
        }
    }

    /// Authority of the plugin's hooks: the permissions that it [declares](crate::Plugin::permissions), as far as the
    /// configuration allows them.
    pub fn permissions(&self) -> &HookPermissions {
        &self.grant.permissions
    }

    /// Settings of the plugin, valid for the [schema](crate::Plugin::config_schema) that it declares and with the defaults
    /// of that schema.
    pub fn config(&self) -> &JsonObject {
        &self.config
    }

    /// Settings of the plugin as a type of its own.
    pub fn parse_config<T: DeserializeOwned>(&self) -> Result<T, BoxError> {
        Ok(serde_json::from_value(Value::Object(self.config.clone()))?)
    }

    /// Implements a hook point with a function. The function gets the arguments it declares and no others.
    pub fn on<P, Params>(&mut self, _point: P, handler: impl AsyncHandler<P, Params>) -> &mut Self
    where
        P: HookPoint<Mode = AsyncMode>,
    {
        let (arguments, grant) = (async_argument_names(&handler), Arc::clone(&self.grant));
        self.add_implementation::<P>(arguments, Arc::new(move |args| handler.call(args, &grant)))
    }

    /// Implements a synchronous hook point with a function.
    pub fn on_sync<P, Params>(&mut self, _point: P, handler: impl SyncHandler<P, Params>) -> &mut Self
    where
        P: HookPoint<Mode = SyncMode>,
    {
        let (arguments, grant) = (sync_argument_names(&handler), Arc::clone(&self.grant));
        self.add_implementation::<P>(arguments, Arc::new(move |args| handler.call(args, &grant)))
    }

    /// Implements a hook point in another process: `handler` gets the declared arguments as JSON, and no others are
    /// serialised. Names that the point does not have are left out.
    pub fn on_remote<P>(
        &mut self,
        _point: P,
        declared: &[impl AsRef<str>],
        handler: impl Fn(RemoteHookCall) -> BoxFuture<'static, HookResult<P::Output>> + Send + Sync + 'static,
    ) -> &mut Self
    where
        P: HookPoint<Mode = AsyncMode>,
        P::Args: RemoteArguments,
    {
        let is_declared = |name: &&&'static str| declared.iter().any(|declared| declared.as_ref() == **name);
        let declared: Vec<&'static str> = P::Args::NAMES.iter().filter(is_declared).copied().collect();
        let (arguments, grant) = (declared.clone(), Arc::clone(&self.grant));
        self.add_implementation::<P>(arguments, Arc::new(move |args| handler(args.remote_call(&declared, &grant))))
    }

    /// Makes the interception hooks that are registered after this call fail closed: a failure stops the intercepted
    /// call instead of being skipped. For hooks that must not fail open, such as a redactor.
    pub fn fail_closed(&mut self) -> &mut Self {
        self.fail_closed = true;
        self
    }

    /// Adds a tracer for every hook call of every plugin.
    pub fn add_tracer(&mut self, tracer: Arc<dyn HookTracer>) -> &mut Self {
        self.tracers.push(tracer);
        self
    }

    /// Ends what the plugin has started, when a host stops: after its runs and channels have ended, with a second or more
    /// for all plugins together. The plugin may be needed again afterwards, by another host of the process.
    pub fn on_stop<Fut>(&mut self, handler: impl Fn() -> Fut + Send + Sync + 'static) -> &mut Self
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.stop_handlers.push(Arc::new(move || Box::pin(handler())));
        self
    }

    fn add_implementation<P: HookPoint>(&mut self, arguments: Vec<&'static str>, call: HookCall<P>) -> &mut Self {
        let implementation = HookImplementation::<P> {
            plugin: self.grant.plugin.clone(),
            arguments: arguments.clone(),
            call,
            fail_closed: self.fail_closed,
        };
        self.contributions.push(HookContribution {
            plugin: self.grant.plugin.clone(),
            point: TypeId::of::<P>(),
            name: P::INFO.name,
            arguments,
            implementation: Arc::new(implementation),
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
