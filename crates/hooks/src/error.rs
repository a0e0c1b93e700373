//! How a hook fails.

use capstan_protocol::PluginName;

/// Any error a hook implementation may return with `?`.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a hook implementation answers: something, nothing, or a failure.
pub type HookResult<T> = Result<Option<T>, BoxError>;

/// A hook implementation that failed, by name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{hook} of plugin {plugin} {reason}")]
pub struct HookError {
    /// The hook.
    pub hook: &'static str,
    /// The plugin that implements it.
    pub plugin: PluginName,
    /// What happened.
    pub reason: HookErrorReason,
}

/// How an implementation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookErrorReason {
    /// It returned an error.
    #[error("failed: {0}")]
    Error(String),
    /// It panicked.
    #[error("panicked: {0}")]
    Panic(String),
    /// It did not answer in time.
    #[error("did not answer within its deadline")]
    DeadlineExceeded,
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
