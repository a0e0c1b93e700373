//! Errors of a turn.
use std::sync::Arc;

use capstan_hooks::HookError;
use capstan_hooks::args::ErrorReport;
use capstan_protocol::{BindingId, CodeOwner, CodedError, ErrorCode, ExitClass, FailureCode, RunnerId};
use capstan_tape::StoreError;

/// Error that ends a turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
#[code(plugin_codes)]
pub enum TurnError {
    /// A hook failed.
    #[error(transparent)]
    #[code(HookFailed)]
    Hook(#[from] HookError),
    /// The run failed.
    #[error("the run failed: {0}")]
    #[code(transparent)]
    Run(RunError),
    /// The run was cancelled.
    #[error("the run was cancelled")]
    #[code(RunCancelled)]
    Cancelled,
    /// Another process held the session for longer than the event could wait.
    #[error("the session is in use by another process")]
    #[code(SessionBusy)]
    Busy,
    /// The queue of the session is full.
    #[error("too many messages are waiting in this conversation; please send this one again later")]
    #[code(QueueFull)]
    QueueFull,
    /// The run exceeded its deadline.
    #[error("the run did not end within its deadline")]
    #[code(RunTimeout)]
    Timeout,
    /// The journal failed.
    #[error(transparent)]
    #[code(transparent)]
    Store(#[from] StoreError),
    /// The binding names a runner that is not registered.
    #[error("there is no runner {0}")]
    #[code(RunnerUnknown)]
    UnknownRunner(RunnerId),
    /// The binding does not fit its runner: it was saved under another version or other settings.
    #[error("the binding {binding_id} does not fit its runner any more: {detail}")]
    #[code(BindingInvalid)]
    UnfitBinding {
        /// The binding.
        binding_id: BindingId,
        /// Problem.
        detail: String,
    },
}

/// Failure of a run, as reported by its runner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// Full message, for the log, the tape and the terminal of the operator.
    pub message: String,
    /// Stable code, if the runner reported one.
    pub code: Option<FailureCode>,
}

impl RunError {
    /// Message for a chat: the text of a model provider is replaced by the public message of its code.
    pub fn public_message(&self) -> String {
        self.code.as_ref().and_then(FailureCode::public_message).unwrap_or_else(|| self.message.clone())
    }
}

impl CodedError for RunError {
    type Code = FailureCode;

    fn code(&self) -> FailureCode {
        self.code.clone().unwrap_or(ErrorCode::RunFailed.into())
    }

    /// A failed run exits as failed whatever its code, unless the store failed it.
    fn exit_class(&self) -> ExitClass {
        if self.code().owner() == CodeOwner::Store { ExitClass::Store } else { ExitClass::Failed }
    }
}

impl TurnError {
    /// Failure of a part that panicked.
    pub fn crashed(what: &str) -> Self {
        Self::Run(RunError { message: format!("{what} crashed"), code: Some(ErrorCode::RunFailed.into()) })
    }

    /// Message for users, without secrets and internal paths.
    pub fn public_message(&self) -> String {
        match self {
            Self::Hook(failure) => format!("{} of plugin {} failed", failure.hook, failure.plugin),
            Self::Run(failure) => failure.public_message(),
            Self::Cancelled | Self::Busy | Self::QueueFull | Self::Timeout | Self::UnknownRunner(_) => self.to_string(),
            Self::UnfitBinding { binding_id, .. } => {
                format!("the binding {binding_id} does not fit its runner any more")
            }
            Self::Store(StoreError::DiskFull { .. } | StoreError::NoInodes { .. }) => "the disk is full".to_owned(),
            Self::Store(_) => "the store failed".to_owned(),
        }
    }

    /// Report of the error for observers.
    pub fn to_report(&self) -> ErrorReport {
        ErrorReport { detail: Arc::from(self.to_string()), public: Arc::from(self.public_message()) }
    }
}
