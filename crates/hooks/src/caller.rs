//! Calls single hook implementations, with timeouts, panic isolation and tracing.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;

use crate::error::panic_message;
use crate::registrar::HookImplementation;
use crate::{
    AsyncMode, HookError, HookErrorReason, HookPhase, HookPoint, HookResult, HookTraceEvent, HookTraceResult, Registry,
    SyncMode,
};

/// Time limits for asynchronous hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookDeadlines {
    /// Limit for hooks that run before an event is accepted, while its source waits.
    pub acceptance: Duration,
    /// Limit for every other hook except the model stage, which has the deadline of its run.
    pub turn: Duration,
}

impl Default for HookDeadlines {
    fn default() -> Self {
        Self { acceptance: Duration::from_secs(5), turn: Duration::from_secs(30) }
    }
}

impl HookDeadlines {
    fn for_phase(&self, phase: HookPhase) -> Option<Duration> {
        match phase {
            HookPhase::Event => Some(self.acceptance),
            HookPhase::ModelStage => None,
            _ => Some(self.turn),
        }
    }
}

/// Calls single implementations of hook points. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HookCaller {
    registry: Arc<Registry>,
    deadlines: HookDeadlines,
}

impl HookCaller {
    pub(crate) fn new(registry: Registry, deadlines: HookDeadlines) -> Self {
        Self { registry: Arc::new(registry), deadlines }
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Calls an implementation and waits for its result, at most for the time limit of the point's phase.
    pub(crate) async fn call<P: HookPoint<Mode = AsyncMode>>(
        &self,
        implementation: &HookImplementation<P>,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookError> {
        // The function itself may panic before it has returned a future.
        let guarded = AssertUnwindSafe(async { (implementation.call)(args).await }).catch_unwind();
        let result = match self.deadlines.for_phase(P::INFO.phase) {
            Some(timeout) => with_timeout(guarded, timeout).await,
            None => guarded.await.map_err(panic_reason),
        };
        self.trace_and_map(implementation, result)
    }

    /// Calls an implementation of a synchronous point.
    pub(crate) fn call_sync<P: HookPoint<Mode = SyncMode>>(
        &self,
        implementation: &HookImplementation<P>,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookError> {
        let result = catch_unwind(AssertUnwindSafe(|| (implementation.call)(args))).map_err(panic_reason);
        self.trace_and_map(implementation, result)
    }

    /// Passes an event to every tracer.
    pub(crate) fn record_trace(&self, event: &HookTraceEvent) {
        for tracer in &self.registry.tracers {
            tracer.record(event);
        }
    }

    fn trace_and_map<P: HookPoint>(
        &self,
        implementation: &HookImplementation<P>,
        result: Result<HookResult<P::Output>, HookErrorReason>,
    ) -> Result<Option<P::Output>, HookError> {
        let result = match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(HookErrorReason::Error(error.to_string())),
            Err(reason) => Err(reason),
        };
        let (hook, plugin) = (P::INFO.name, &implementation.plugin);
        if !self.registry.tracers.is_empty() {
            let traced = match &result {
                Ok(Some(value)) => HookTraceResult::Value(P::describe(value)),
                Ok(None) => HookTraceResult::Nothing,
                Err(reason) => HookTraceResult::Failed(reason.to_string()),
            };
            let arguments = implementation.arguments.clone();
            self.record_trace(&HookTraceEvent::Called { hook, plugin: plugin.clone(), arguments, result: traced });
        }
        result.map_err(|reason| HookError { hook, plugin: plugin.clone(), reason })
    }
}

async fn with_timeout<T>(
    guarded: impl Future<Output = Result<T, Box<dyn Any + Send>>>,
    timeout: Duration,
) -> Result<T, HookErrorReason> {
    match tokio::time::timeout(timeout, guarded).await {
        Ok(result) => result.map_err(panic_reason),
        Err(_) => Err(HookErrorReason::DeadlineExceeded),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "used as an argument of map_err")]
fn panic_reason(panic: Box<dyn Any + Send>) -> HookErrorReason {
    HookErrorReason::Panic(panic_message(panic.as_ref()))
}
