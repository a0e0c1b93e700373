//! Hook points as types: their arguments, their output, and how the answers of several plugins become one.

use std::fmt;

use futures::future::BoxFuture;

use crate::HookResult;

/// A place in the life of a host where plugins are asked.
pub trait HookPoint: Send + std::marker::Sync + 'static {
    /// What is known about it.
    const INFO: HookPointInfo;
    /// Everything an implementation may ask for.
    type Args: Send + std::marker::Sync + 'static;
    /// What an implementation answers.
    type Output: Send + 'static;
    /// Whether implementations may wait.
    type Mode: HookMode;

    /// An answer in a few words, for traces.
    fn describe(output: &Self::Output) -> String;
}

/// What is known about a hook point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookPointInfo {
    /// Its name.
    pub name: &'static str,
    /// How answers become one.
    pub aggregation: HookAggregation,
    /// When it is called.
    pub phase: HookPhase,
    /// Whether implementations answer at once.
    pub is_synchronous: bool,
}

/// How the answers of several plugins become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookAggregation {
    /// The first plugin that answers something decides.
    First,
    /// Every plugin is asked; all answers are collected.
    All,
    /// Every plugin is asked; maps are merged, the highest priority wins a key.
    Merged,
    /// Every plugin is asked; texts are joined, the lowest priority first.
    Joined,
    /// Every plugin is asked; batches are put one after another.
    Flattened,
    /// Every plugin is asked; of things with the same name the highest priority wins.
    FirstOfName,
    /// Each plugin gets what the ones before it made, in the order of registration.
    Folded,
    /// Each plugin gets what the ones of higher priority made of it; one may end the chain.
    Chain,
    /// Every plugin is told; a failure stays its own.
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

/// When a hook point is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPhase {
    /// Once for each event.
    Event,
    /// Once for each turn.
    Turn,
    /// Once for each turn, for as long as its run may take.
    ModelStage,
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
    /// When a user sets the host up.
    Onboarding,
    /// Whenever something fails.
    AnyTime,
}

impl fmt::Display for HookPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Event => "per event",
            Self::Turn | Self::ModelStage => "per turn",
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

/// Whether an implementation may wait.
pub trait HookMode: 'static {
    /// What calling an implementation gives.
    type CallResult<T: Send + 'static>;
}

/// Implementations may wait.
pub struct AsyncMode;

impl HookMode for AsyncMode {
    type CallResult<T: Send + 'static> = BoxFuture<'static, HookResult<T>>;
}

/// Implementations answer at once: there is nothing to wait with.
pub struct SyncMode;

impl HookMode for SyncMode {
    type CallResult<T: Send + 'static> = HookResult<T>;
}

/// Something an implementation of a hook point may ask for by declaring it as a parameter.
pub trait HookArgument<P: HookPoint>: Send + 'static {
    /// The name of the argument.
    const ARGUMENT_NAME: &'static str;

    /// Takes it out of the point's arguments.
    fn extract(args: &P::Args) -> Self;
}
