//! Errors of hooks.

use capstan_protocol::PluginName;

/// Any error a hook implementation may return with `?`.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Answer of a hook implementation: a value, no value, or a failure.
pub type HookResult<T> = Result<Option<T>, BoxError>;

/// Failure of a hook implementation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{hook} of plugin {plugin} {reason}")]
pub struct HookError {
    /// The hook.
    pub hook: &'static str,
    /// The plugin that implements it.
    pub plugin: PluginName,
    /// Cause of the failure.
    pub reason: HookErrorReason,
}

/// Cause of a hook failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookErrorReason {
    /// The implementation returned an error.
    #[error("failed: {0}")]
    Error(String),
    /// The implementation panicked.
    #[error("panicked: {0}")]
    Panic(String),
    /// The implementation did not answer before its deadline.
    #[error("did not answer within its deadline")]
    DeadlineExceeded,
}

/// Message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
