//! Calling hooks: in order, with deadlines, one plugin's failure named.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use capstan_protocol::PluginName;
use futures::FutureExt as _;

use crate::args::{ErrorReport, ErrorStage, MaybeInboundEvent, NoticeRequest, OnErrorArgs};
use crate::error::panic_message;
use crate::points::{OnError, RunModel, RunModelStream};
use crate::registry::HookImplementation;
use crate::{
    AsyncMode, HookDecision, HookError, HookErrorReason, HookPhase, HookPoint, HookResult, HookTraceEvent,
    HookTraceResult, HookTracer, InboundEvent, Registry, SyncMode,
};

/// How long an asynchronous hook may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookDeadlines {
    /// Hooks before acceptance: the source waits for them.
    pub acceptance: Duration,
    /// Every other hook but the model stage, whose time is the run's.
    pub turn: Duration,
}

impl Default for HookDeadlines {
    fn default() -> Self {
        Self { acceptance: Duration::from_secs(5), turn: Duration::from_secs(30) }
    }
}

/// Calls hooks. Cheap to clone.
#[derive(Clone)]
pub struct HookRuntime {
    registry: Arc<Registry>,
    deadlines: HookDeadlines,
}

impl HookRuntime {
    /// A runtime over what was registered.
    pub fn new(registry: Registry, deadlines: HookDeadlines) -> Self {
        Self { registry: Arc::new(registry), deadlines }
    }

    /// What was registered.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Whether any plugin implements a point.
    pub fn is_implemented<P: HookPoint>(&self) -> bool {
        self.registry.implementations::<P>().next().is_some()
    }

    /// Whether some plugin beside the built-in one implements a point.
    pub fn is_overridden<P: HookPoint>(&self) -> bool {
        // The built-in plugin registers first, and so comes last.
        let builtin = self.registry.plugins_in_call_order().last();
        self.registry.implementations::<P>().any(|one| Some(&one.plugin) != builtin)
    }

    /// Whether some plugin beside the built-in one may decide the model stage.
    pub fn has_model_stage_override(&self) -> bool {
        self.is_overridden::<RunModel>() || self.is_overridden::<RunModelStream>()
    }

    /// Asks by priority and stops at the first value.
    pub async fn call_first<P: HookPoint<Mode = AsyncMode>>(
        &self,
        args: &P::Args,
    ) -> Result<Option<HookDecision<P::Output>>, HookError> {
        for implementation in self.registry.implementations::<P>() {
            if let Some(value) = self.call_implementation(implementation, args).await? {
                return Ok(Some(HookDecision { plugin: implementation.plugin.clone(), value }));
            }
        }
        Ok(None)
    }

    /// Asks every plugin, by priority; "nothing" is an answer too.
    pub async fn call_all<P: HookPoint<Mode = AsyncMode>>(
        &self,
        args: &P::Args,
    ) -> Result<Vec<HookDecision<Option<P::Output>>>, HookError> {
        let mut answers = Vec::new();
        for implementation in self.registry.implementations::<P>() {
            let value = self.call_implementation(implementation, args).await?;
            answers.push(HookDecision { plugin: implementation.plugin.clone(), value });
        }
        Ok(answers)
    }

    /// Asks every plugin even when one fails, and then gives the first failure.
    pub async fn call_all_despite_failures<P: HookPoint<Mode = AsyncMode>>(
        &self,
        args: &P::Args,
    ) -> Result<(), HookError> {
        let mut outcome = Ok(());
        for implementation in self.registry.implementations::<P>() {
            if let Err(failure) = self.call_implementation(implementation, args).await {
                outcome = outcome.and(Err(failure));
            }
        }
        outcome
    }

    /// Asks one plugin, if it implements the point.
    pub(crate) async fn call_plugin<P: HookPoint<Mode = AsyncMode>>(
        &self,
        plugin: &PluginName,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookError> {
        for implementation in self.registry.implementations::<P>() {
            if implementation.plugin == *plugin
                && let Some(value) = self.call_implementation(implementation, args).await?
            {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Asks synchronously by priority and stops at the first value.
    pub fn call_first_sync<P: HookPoint<Mode = SyncMode>>(
        &self,
        args: &P::Args,
    ) -> Result<Option<HookDecision<P::Output>>, HookError> {
        for implementation in self.registry.implementations::<P>() {
            if let Some(value) = self.call_implementation_sync(implementation, args)? {
                return Ok(Some(HookDecision { plugin: implementation.plugin.clone(), value }));
            }
        }
        Ok(None)
    }

    /// Asks every plugin synchronously, by priority.
    pub fn call_all_sync<P: HookPoint<Mode = SyncMode>>(
        &self,
        args: &P::Args,
    ) -> Result<Vec<HookDecision<Option<P::Output>>>, HookError> {
        let ask = |implementation: &HookImplementation<P>| {
            let value = self.call_implementation_sync(implementation, args)?;
            Ok(HookDecision { plugin: implementation.plugin.clone(), value })
        };
        self.registry.implementations::<P>().map(ask).collect()
    }

    /// What every plugin provides, the highest priority first; of things with the same name only the first is kept. A
    /// plugin that fails is reported and provides nothing, and the others still do.
    pub fn collect_provided<P, T>(&self, name: impl Fn(&T) -> String) -> Vec<T>
    where
        P: HookPoint<Mode = SyncMode, Args = (), Output = Vec<T>>,
        T: Send + 'static,
    {
        self.collect_provided_with_plugin::<P, T>(name).into_iter().map(|(_, item)| item).collect()
    }

    /// The same, with the plugin that each comes from.
    pub fn collect_provided_with_plugin<P, T>(&self, name: impl Fn(&T) -> String) -> Vec<(PluginName, T)>
    where
        P: HookPoint<Mode = SyncMode, Args = (), Output = Vec<T>>,
        T: Send + 'static,
    {
        let mut kept: Vec<(PluginName, T)> = Vec::new();
        for implementation in self.registry.implementations::<P>() {
            let provided = self.call_implementation_sync(implementation, &()).unwrap_or_else(|failure| {
                tracing::warn!(hook = failure.hook, plugin = %failure.plugin, reason = %failure.reason, "plugin provides nothing");
                None
            });
            for item in provided.into_iter().flatten() {
                if !kept.iter().any(|(_, other)| name(other) == name(&item)) {
                    kept.push((implementation.plugin.clone(), item));
                }
            }
        }
        kept
    }

    /// Tells every observer what went wrong. One that fails is logged, the others are still told.
    pub async fn notify_error(
        &self,
        stage: ErrorStage,
        error: ErrorReport,
        message: Option<InboundEvent>,
        notice: &NoticeRequest,
    ) {
        let args = OnErrorArgs { stage, error, message: MaybeInboundEvent(message), notice: notice.clone() };
        for implementation in self.registry.implementations::<OnError>() {
            if let Err(failure) = self.call_implementation(implementation, &args).await {
                tracing::warn!(stage = stage.as_str(), plugin = %failure.plugin, reason = %failure.reason, "on_error failed");
            }
        }
    }

    /// Says that no plugin decided and what was used instead.
    pub fn trace_fallback<P: HookPoint>(&self, value: impl Into<String>) {
        self.record_trace(&HookTraceEvent::Fallback { hook: P::INFO.name, value: value.into() });
    }

    pub(crate) async fn call_implementation<P: HookPoint<Mode = AsyncMode>>(
        &self,
        implementation: &HookImplementation<P>,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookError> {
        // The call itself may panic before there is a future to guard.
        let guarded = AssertUnwindSafe(async { (implementation.call)(args).await }).catch_unwind();
        let answer = match self.deadline(&P::INFO) {
            Some(deadline) => with_deadline(guarded, deadline).await,
            None => guarded.await.map_err(|panic| HookErrorReason::Panic(panic_message(panic.as_ref()))),
        };
        self.record_result(implementation, answer)
    }

    /// The implementations of a point as they were registered, for points that fold.
    pub(crate) fn implementations_in_registration_order<P: HookPoint>(&self) -> Vec<&HookImplementation<P>> {
        let mut implementations: Vec<_> = self.registry.implementations::<P>().collect();
        implementations.reverse();
        implementations
    }

    pub(crate) fn call_implementation_sync<P: HookPoint<Mode = SyncMode>>(
        &self,
        implementation: &HookImplementation<P>,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookError> {
        let answer = std::panic::catch_unwind(AssertUnwindSafe(|| (implementation.call)(args)));
        let answer = answer.map_err(|panic| HookErrorReason::Panic(panic_message(panic.as_ref())));
        self.record_result(implementation, answer)
    }

    fn deadline(&self, point: &crate::HookPointInfo) -> Option<Duration> {
        match point.phase {
            HookPhase::Event => Some(self.deadlines.acceptance),
            HookPhase::ModelStage => None,
            _ => Some(self.deadlines.turn),
        }
    }

    fn record_result<P: HookPoint>(
        &self,
        implementation: &HookImplementation<P>,
        answer: Result<HookResult<P::Output>, HookErrorReason>,
    ) -> Result<Option<P::Output>, HookError> {
        let result = match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(HookErrorReason::Error(error.to_string())),
            Err(reason) => Err(reason),
        };
        if !self.registry.tracers.is_empty() {
            let answer = match &result {
                Ok(Some(value)) => HookTraceResult::Value(P::describe(value)),
                Ok(None) => HookTraceResult::Nothing,
                Err(reason) => HookTraceResult::Failed(reason.to_string()),
            };
            let (plugin, arguments) = (implementation.plugin.clone(), implementation.arguments.clone());
            self.record_trace(&HookTraceEvent::Called { hook: P::INFO.name, plugin, arguments, result: answer });
        }
        result.map_err(|reason| HookError { hook: P::INFO.name, plugin: implementation.plugin.clone(), reason })
    }

    fn record_trace(&self, event: &HookTraceEvent) {
        self.registry.tracers.iter().for_each(|trace: &Arc<dyn HookTracer>| trace.record(event));
    }
}

async fn with_deadline<T>(
    guarded: impl Future<Output = Result<T, Box<dyn std::any::Any + Send>>>,
    deadline: Duration,
) -> Result<T, HookErrorReason> {
    match tokio::time::timeout(deadline, guarded).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(panic)) => Err(HookErrorReason::Panic(panic_message(panic.as_ref()))),
        Err(_) => Err(HookErrorReason::DeadlineExceeded),
    }
}
