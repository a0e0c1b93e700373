//! Hook runtime: calls the implementations of a point in order and combines their answers.

use capstan_protocol::PluginName;

use crate::args::{ErrorReport, ErrorStage, MaybeInboundEvent, NoticeRequest, OnErrorArgs};
use crate::caller::HookCaller;
use crate::points::{OnError, RunModel, RunModelStream};
use crate::registrar::HookImplementation;
use crate::{
    AsyncMode, HookDeadlines, HookError, HookPoint, HookTraceEvent, HookTurn, InboundEvent, InterceptorChain, Registry,
    SyncMode,
};

/// Value of a hook with the plugin that returned it.
pub struct HookDecision<T> {
    /// The plugin.
    pub plugin: PluginName,
    /// Its value.
    pub value: T,
}

/// Calls hooks. Cheap to clone.
///
/// Plugins run in call order: the last registered has the highest priority and is called first.
#[derive(Clone)]
pub struct HookRuntime {
    caller: HookCaller,
}

impl HookRuntime {
    /// Creates a runtime over a registry.
    pub fn new(registry: Registry, deadlines: HookDeadlines) -> Self {
        Self { caller: HookCaller::new(registry, deadlines) }
    }

    /// Registered plugins and their contributions.
    pub fn registry(&self) -> &Registry {
        self.caller.registry()
    }

    /// Chain of the hooks that intercept model and tool calls.
    pub fn interceptors(&self) -> InterceptorChain<'_> {
        InterceptorChain::new(&self.caller)
    }

    /// Returns true if any plugin implements the point.
    pub fn is_implemented<P: HookPoint>(&self) -> bool {
        self.registry().implementations::<P>().next().is_some()
    }

    /// Returns true if a plugin other than the built-in one implements the point.
    pub fn is_overridden<P: HookPoint>(&self) -> bool {
        // The built-in plugin registers first, and so comes last.
        let builtin = self.registry().plugins_by_priority().last();
        self.registry().implementations::<P>().any(|implementation| Some(&implementation.plugin) != builtin)
    }

    /// Returns true if a plugin other than the built-in one may decide the model stage.
    pub fn has_model_stage_override(&self) -> bool {
        self.is_overridden::<RunModel>() || self.is_overridden::<RunModelStream>()
    }

    /// Calls the plugins by priority and stops at the first value.
    pub async fn call_first<P: HookPoint<Mode = AsyncMode>>(
        &self,
        args: &P::Args,
    ) -> Result<Option<HookDecision<P::Output>>, HookError> {
        for implementation in self.registry().implementations::<P>() {
            if let Some(value) = self.caller.call(implementation, args).await? {
                return Ok(Some(HookDecision { plugin: implementation.plugin.clone(), value }));
            }
        }
        Ok(None)
    }

    /// Calls every plugin by priority and collects all answers, including `None`. Stops at the first failure.
    pub async fn call_all<P: HookPoint<Mode = AsyncMode>>(
        &self,
        args: &P::Args,
    ) -> Result<Vec<HookDecision<Option<P::Output>>>, HookError> {
        let mut answers = Vec::new();
        for implementation in self.registry().implementations::<P>() {
            let value = self.caller.call(implementation, args).await?;
            answers.push(HookDecision { plugin: implementation.plugin.clone(), value });
        }
        Ok(answers)
    }

    /// Calls every plugin even after a failure, then returns the first failure.
    pub async fn call_all_despite_failures<P: HookPoint<Mode = AsyncMode>>(
        &self,
        args: &P::Args,
    ) -> Result<(), HookError> {
        let mut outcome = Ok(());
        for implementation in self.registry().implementations::<P>() {
            if let Err(failure) = self.caller.call(implementation, args).await {
                outcome = outcome.and(Err(failure));
            }
        }
        outcome
    }

    /// Calls one plugin, if it implements the point.
    pub(crate) async fn call_plugin<P: HookPoint<Mode = AsyncMode>>(
        &self,
        plugin: &PluginName,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookError> {
        for implementation in self.registry().implementations::<P>() {
            if implementation.plugin == *plugin
                && let Some(value) = self.caller.call(implementation, args).await?
            {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Calls one implementation of a synchronous point.
    pub(crate) fn call_implementation_sync<P: HookPoint<Mode = SyncMode>>(
        &self,
        implementation: &HookImplementation<P>,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookError> {
        self.caller.call_sync(implementation, args)
    }

    /// Synchronous form of [`call_first`](Self::call_first).
    pub fn call_first_sync<P: HookPoint<Mode = SyncMode>>(
        &self,
        args: &P::Args,
    ) -> Result<Option<HookDecision<P::Output>>, HookError> {
        for implementation in self.registry().implementations::<P>() {
            if let Some(value) = self.caller.call_sync(implementation, args)? {
                return Ok(Some(HookDecision { plugin: implementation.plugin.clone(), value }));
            }
        }
        Ok(None)
    }

    /// Synchronous form of [`call_all`](Self::call_all).
    pub fn call_all_sync<P: HookPoint<Mode = SyncMode>>(
        &self,
        args: &P::Args,
    ) -> Result<Vec<HookDecision<Option<P::Output>>>, HookError> {
        let call = |implementation: &HookImplementation<P>| {
            let value = self.caller.call_sync(implementation, args)?;
            Ok(HookDecision { plugin: implementation.plugin.clone(), value })
        };
        self.registry().implementations::<P>().map(call).collect()
    }

    /// Collects the objects that the plugins provide, the highest priority first. Of several with the same name only
    /// the first is returned. The failure of a plugin is logged; the objects of the others are still returned.
    pub fn collect_provided<P, T>(&self, name: impl Fn(&T) -> String) -> Vec<T>
    where
        P: HookPoint<Mode = SyncMode, Args = (), Output = Vec<T>>,
        T: Send + 'static,
    {
        self.collect_provided_with_plugin::<P, T>(name).into_iter().map(|(_, object)| object).collect()
    }

    /// Like [`collect_provided`](Self::collect_provided), with the plugin that provides each object.
    pub fn collect_provided_with_plugin<P, T>(&self, name: impl Fn(&T) -> String) -> Vec<(PluginName, T)>
    where
        P: HookPoint<Mode = SyncMode, Args = (), Output = Vec<T>>,
        T: Send + 'static,
    {
        let mut collected: Vec<(PluginName, T)> = Vec::new();
        for (plugin, object) in self.collect_all_provided::<P, T>() {
            if !collected.iter().any(|(_, other)| name(other) == name(&object)) {
                collected.push((plugin, object));
            }
        }
        collected
    }

    /// Collects every object that the plugins provide, each with its plugin, also those with equal names.
    pub fn collect_all_provided<P, T>(&self) -> Vec<(PluginName, T)>
    where
        P: HookPoint<Mode = SyncMode, Args = (), Output = Vec<T>>,
        T: Send + 'static,
    {
        let mut collected = Vec::new();
        for implementation in self.registry().implementations::<P>() {
            let provided = self.caller.call_sync(implementation, &()).unwrap_or_else(|failure| {
                tracing::warn!(hook = failure.hook, plugin = %failure.plugin, reason = %failure.reason, "plugin provides nothing");
                None
            });
            collected.extend(provided.into_iter().flatten().map(|object| (implementation.plugin.clone(), object)));
        }
        collected
    }

    /// Reports an error to every observer. An observer that fails is logged; the others are still called.
    pub async fn notify_error(
        &self,
        stage: ErrorStage,
        error: ErrorReport,
        message: Option<InboundEvent>,
        notice: &NoticeRequest,
        turn: &HookTurn,
    ) {
        let (message, notice, turn) = (MaybeInboundEvent(message), notice.clone(), turn.clone());
        let args = OnErrorArgs { stage, error, message, notice, turn };
        for implementation in self.registry().implementations::<OnError>() {
            if let Err(failure) = self.caller.call(implementation, &args).await {
                tracing::warn!(stage = stage.as_str(), plugin = %failure.plugin, reason = %failure.reason, "on_error failed");
            }
        }
    }

    /// Records in the trace that no plugin decided, and the value that was used instead.
    pub fn trace_fallback<P: HookPoint>(&self, value: impl Into<String>) {
        self.caller.record_trace(&HookTraceEvent::Fallback { hook: P::INFO.name, value: value.into() });
    }
}
