//! Calling hooks: in order, with deadlines, one plugin's failure named.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use capstan_protocol::PluginName;
use futures::FutureExt as _;

use crate::args::{Fault, MaybeInbound, OnErrorArgs, Stage};
use crate::error::panic_text;
use crate::points::{OnError, RunModel, RunModelStream};
use crate::registry::Implementation;
use crate::{
    Answer, Async, Decided, HookFailure, HookResult, Inbound, Phase, Point, Reason, Registry, Sync, Trace, TraceEvent,
};

/// How long an asynchronous hook may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Hooks before acceptance: the source waits for them.
    pub acceptance: Duration,
    /// Every other hook but the model stage, whose time is the run's.
    pub turn: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { acceptance: Duration::from_secs(5), turn: Duration::from_secs(30) }
    }
}

/// Calls hooks. Cheap to clone.
#[derive(Clone)]
pub struct HookRuntime {
    registry: Arc<Registry>,
    deadlines: Deadlines,
}

impl HookRuntime {
    /// A runtime over what was registered.
    pub fn new(registry: Registry, deadlines: Deadlines) -> Self {
        Self { registry: Arc::new(registry), deadlines }
    }

    /// What was registered.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Whether any plugin implements a point.
    pub fn is_implemented<P: Point>(&self) -> bool {
        self.registry.implementations::<P>().next().is_some()
    }

    /// Whether some plugin beside the built-in one implements a point.
    pub fn is_replaced<P: Point>(&self) -> bool {
        // The built-in plugin registers first, and so comes last.
        let builtin = self.registry.running_order().last();
        self.registry.implementations::<P>().any(|one| Some(&one.plugin) != builtin)
    }

    /// Whether some plugin beside the built-in one may decide the model stage.
    pub fn has_stand_ins(&self) -> bool {
        self.is_replaced::<RunModel>() || self.is_replaced::<RunModelStream>()
    }

    /// Asks by priority and stops at the first value.
    pub async fn first<P: Point<Mode = Async>>(
        &self,
        args: &P::Args,
    ) -> Result<Option<Decided<P::Output>>, HookFailure> {
        for implementation in self.registry.implementations::<P>() {
            if let Some(value) = self.call(implementation, args).await? {
                return Ok(Some(Decided { plugin: implementation.plugin.clone(), value }));
            }
        }
        Ok(None)
    }

    /// Asks every plugin, by priority; "nothing" is an answer too.
    pub async fn all<P: Point<Mode = Async>>(
        &self,
        args: &P::Args,
    ) -> Result<Vec<Decided<Option<P::Output>>>, HookFailure> {
        let mut answers = Vec::new();
        for implementation in self.registry.implementations::<P>() {
            let value = self.call(implementation, args).await?;
            answers.push(Decided { plugin: implementation.plugin.clone(), value });
        }
        Ok(answers)
    }

    /// Asks every plugin even when one fails, and then gives the first failure.
    pub async fn all_in_any_case<P: Point<Mode = Async>>(&self, args: &P::Args) -> Result<(), HookFailure> {
        let mut outcome = Ok(());
        for implementation in self.registry.implementations::<P>() {
            if let Err(failure) = self.call(implementation, args).await {
                outcome = outcome.and(Err(failure));
            }
        }
        outcome
    }

    /// Asks one plugin, if it implements the point.
    pub(crate) async fn ask<P: Point<Mode = Async>>(
        &self,
        plugin: &PluginName,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookFailure> {
        for implementation in self.registry.implementations::<P>() {
            if implementation.plugin == *plugin
                && let Some(value) = self.call(implementation, args).await?
            {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Asks synchronously by priority and stops at the first value.
    pub fn first_sync<P: Point<Mode = Sync>>(&self, args: &P::Args) -> Result<Option<Decided<P::Output>>, HookFailure> {
        for implementation in self.registry.implementations::<P>() {
            if let Some(value) = self.call_sync(implementation, args)? {
                return Ok(Some(Decided { plugin: implementation.plugin.clone(), value }));
            }
        }
        Ok(None)
    }

    /// Asks every plugin synchronously, by priority.
    pub fn all_sync<P: Point<Mode = Sync>>(
        &self,
        args: &P::Args,
    ) -> Result<Vec<Decided<Option<P::Output>>>, HookFailure> {
        let ask = |implementation: &Implementation<P>| {
            let value = self.call_sync(implementation, args)?;
            Ok(Decided { plugin: implementation.plugin.clone(), value })
        };
        self.registry.implementations::<P>().map(ask).collect()
    }

    /// What every plugin provides, the highest priority first; of things with the same name only the first is kept. A
    /// plugin that fails is reported and provides nothing, and the others still do.
    pub fn provided<P, T>(&self, name: impl Fn(&T) -> String) -> Vec<T>
    where
        P: Point<Mode = Sync, Args = (), Output = Vec<T>>,
        T: Send + 'static,
    {
        self.provided_by::<P, T>(name).into_iter().map(|(_, item)| item).collect()
    }

    /// The same, with the plugin that each comes from.
    pub fn provided_by<P, T>(&self, name: impl Fn(&T) -> String) -> Vec<(PluginName, T)>
    where
        P: Point<Mode = Sync, Args = (), Output = Vec<T>>,
        T: Send + 'static,
    {
        let mut kept: Vec<(PluginName, T)> = Vec::new();
        for implementation in self.registry.implementations::<P>() {
            let provided = self.call_sync(implementation, &()).unwrap_or_else(|failure| {
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
    pub async fn notify_error(&self, stage: Stage, error: Fault, message: Option<Inbound>) {
        let args = OnErrorArgs { stage, error, message: MaybeInbound(message) };
        for implementation in self.registry.implementations::<OnError>() {
            if let Err(failure) = self.call(implementation, &args).await {
                tracing::warn!(stage = stage.as_str(), plugin = %failure.plugin, reason = %failure.reason, "on_error failed");
            }
        }
    }

    /// Says that no plugin decided and what was used instead.
    pub fn fell_back<P: Point>(&self, value: impl Into<String>) {
        self.trace(&TraceEvent::Fallback { hook: P::INFO.name, value: value.into() });
    }

    pub(crate) async fn call<P: Point<Mode = Async>>(
        &self,
        implementation: &Implementation<P>,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookFailure> {
        // The call itself may panic before there is a future to guard.
        let guarded = AssertUnwindSafe(async { (implementation.call)(args).await }).catch_unwind();
        let answer = match self.deadline(&P::INFO) {
            Some(deadline) => in_time(guarded, deadline).await,
            None => guarded.await.map_err(|panic| Reason::Panic(panic_text(panic.as_ref()))),
        };
        self.answered(implementation, answer)
    }

    /// The implementations of a point as they were registered, for points that fold.
    pub(crate) fn in_registration_order<P: Point>(&self) -> Vec<&Implementation<P>> {
        let mut implementations: Vec<_> = self.registry.implementations::<P>().collect();
        implementations.reverse();
        implementations
    }

    pub(crate) fn call_sync<P: Point<Mode = Sync>>(
        &self,
        implementation: &Implementation<P>,
        args: &P::Args,
    ) -> Result<Option<P::Output>, HookFailure> {
        let answer = std::panic::catch_unwind(AssertUnwindSafe(|| (implementation.call)(args)));
        let answer = answer.map_err(|panic| Reason::Panic(panic_text(panic.as_ref())));
        self.answered(implementation, answer)
    }

    fn deadline(&self, point: &crate::PointInfo) -> Option<Duration> {
        match point.phase {
            Phase::Event => Some(self.deadlines.acceptance),
            Phase::ModelStage => None,
            _ => Some(self.deadlines.turn),
        }
    }

    fn answered<P: Point>(
        &self,
        implementation: &Implementation<P>,
        answer: Result<HookResult<P::Output>, Reason>,
    ) -> Result<Option<P::Output>, HookFailure> {
        let result = match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Reason::Error(error.to_string())),
            Err(reason) => Err(reason),
        };
        if !self.registry.traces.is_empty() {
            let answer = match &result {
                Ok(Some(value)) => Answer::Value(P::describe(value)),
                Ok(None) => Answer::Nothing,
                Err(reason) => Answer::Failed(reason.to_string()),
            };
            let (plugin, arguments) = (implementation.plugin.clone(), implementation.arguments.clone());
            self.trace(&TraceEvent::Called { hook: P::INFO.name, plugin, arguments, answer });
        }
        result.map_err(|reason| HookFailure { hook: P::INFO.name, plugin: implementation.plugin.clone(), reason })
    }

    fn trace(&self, event: &TraceEvent) {
        self.registry.traces.iter().for_each(|trace: &Arc<dyn Trace>| trace.record(event));
    }
}

async fn in_time<T>(
    guarded: impl Future<Output = Result<T, Box<dyn std::any::Any + Send>>>,
    deadline: Duration,
) -> Result<T, Reason> {
    match tokio::time::timeout(deadline, guarded).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(panic)) => Err(Reason::Panic(panic_text(panic.as_ref()))),
        Err(_) => Err(Reason::Deadline),
    }
}
