//! Watching the hooks at work.

use capstan_protocol::PluginName;

/// Is told every hook call. For recorders, telemetry and tests; it changes nothing.
pub trait HookTracer: Send + Sync + 'static {
    /// Something happened.
    fn record(&self, event: &HookTraceEvent);
}

/// What happened in the hook runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookTraceEvent {
    /// A plugin was asked, and this is what came of it.
    Called {
        /// The hook.
        hook: &'static str,
        /// The plugin.
        plugin: PluginName,
        /// The arguments it was given.
        arguments: Vec<&'static str>,
        /// What it answered.
        result: HookTraceResult,
    },
    /// No plugin decided, so the turn used its own answer.
    Fallback {
        /// The hook.
        hook: &'static str,
        /// What the turn used.
        value: String,
    },
}

/// What a plugin answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookTraceResult {
    /// A value, in a few words.
    Value(String),
    /// Nothing.
    Nothing,
    /// A failure.
    Failed(String),
}
