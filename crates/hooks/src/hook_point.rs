//! Hook points as types: arguments, output, and the aggregation of the answers of several plugins.

use std::fmt;

use futures::future::BoxFuture;

use crate::{HookResult, PluginGrant};

/// Point in the life of a host at which plugins are called.
pub trait HookPoint: Send + Sync + 'static {
    /// Name and properties of the point.
    const INFO: HookPointInfo;
    /// Arguments that an implementation may declare.
    type Args: Send + Sync + 'static;
    /// Value that an implementation returns.
    type Output: Send + 'static;
    /// [`AsyncMode`] or [`SyncMode`].
    type Mode: HookMode;

    /// Short description of a value, for traces.
    fn describe(output: &Self::Output) -> String;
}

/// Name and properties of a hook point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookPointInfo {
    /// Name of the point.
    pub name: &'static str,
    /// Aggregation of the answers.
    pub aggregation: HookAggregation,
    /// Occasion of the call.
    pub phase: HookPhase,
    /// Implementations are called synchronously.
    pub is_synchronous: bool,
}

/// Aggregation of the answers of several plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookAggregation {
    /// The first plugin that returns a value decides.
    First,
    /// Every plugin is called; all answers are collected.
    All,
    /// Every plugin is called; maps are merged, and the highest priority wins a key.
    Merged,
    /// Every plugin is called; texts are joined, the lowest priority first.
    Joined,
    /// Every plugin is called; lists are concatenated.
    Flattened,
    /// Every plugin is called; of objects with the same name the highest priority wins.
    FirstOfName,
    /// Each plugin gets the result of the plugins before it, in the order of registration.
    Folded,
    /// Each plugin gets the result of the plugins of higher priority; any of them may end the chain.
    Chain,
    /// Every plugin is called; the failure of one does not affect the others.
    Observers,
}

impl fmt::Display for HookAggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first result",
            Self::All => "all",
            Self::Merged => "all, merged",
            Self::Joined => "all, joined",
            Self::Flattened => "all, flattened",
            Self::FirstOfName => "all, first of a name",
            Self::Folded => "folded",
            Self::Chain => "chain",
            Self::Observers => "observers",
        })
    }
}

/// Occasion on which a hook point is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPhase {
    /// Once for each event.
    Event,
    /// Once for each turn.
    Turn,
    /// Once for each turn, for as long as its run may take.
    ModelStage,
    /// Once for each run.
    Run,
    /// Once for each further step of the agent.
    Step,
    /// Once for each outbound message.
    Outbound,
    /// Once for each call of a model.
    ModelCall,
    /// Once for each call of a tool.
    ToolCall,
    /// Once when the host starts.
    StartUp,
    /// During `capstan onboard`.
    Onboarding,
    /// On any failure.
    AnyTime,
}

impl fmt::Display for HookPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Event => "per event",
            Self::Turn | Self::ModelStage => "per turn",
            Self::Run => "per run",
            Self::Step => "per step",
            Self::Outbound => "per outbound",
            Self::ModelCall => "per model call",
            Self::ToolCall => "per tool call",
            Self::StartUp => "start-up",
            Self::Onboarding => "onboarding",
            Self::AnyTime => "any time",
        })
    }
}

/// Mode of calling implementations: asynchronous or synchronous.
pub trait HookMode: 'static {
    /// Return type of an implementation.
    type CallResult<T: Send + 'static>;
}

/// Implementations return a future.
pub struct AsyncMode;

impl HookMode for AsyncMode {
    type CallResult<T: Send + 'static> = BoxFuture<'static, HookResult<T>>;
}

/// Implementations return immediately.
pub struct SyncMode;

impl HookMode for SyncMode {
    type CallResult<T: Send + 'static> = HookResult<T>;
}

/// Argument that an implementation may declare as a parameter; `A` are the [arguments](HookPoint::Args) of its point.
pub trait HookArgument<A>: Send + 'static {
    /// Name of the argument.
    const ARGUMENT_NAME: &'static str;

    /// Extracts the argument for an implementation of the plugin that holds the grant.
    fn extract(args: &A, grant: &PluginGrant) -> Self;
}
