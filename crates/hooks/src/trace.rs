//! Traces of hook calls.

use capstan_protocol::PluginName;

/// Observer of every hook call, for recorders, telemetry and tests.
pub trait HookTracer: Send + Sync + 'static {
    /// Records an event.
    fn record(&self, event: &HookTraceEvent);
}

/// Event of the hook runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookTraceEvent {
    /// A plugin was called.
    Called {
        /// The hook.
        hook: &'static str,
        /// The plugin.
        plugin: PluginName,
        /// Names of the arguments it received.
        arguments: Vec<&'static str>,
        /// Its answer.
        result: HookTraceResult,
    },
    /// No plugin decided, so the turn used its own value.
    Fallback {
        /// The hook.
        hook: &'static str,
        /// Description of the value that was used.
        value: String,
    },
}

/// Answer of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookTraceResult {
    /// Description of a value.
    Value(String),
    /// No value.
    Nothing,
    /// Message of a failure.
    Failed(String),
}
