//! Why a turn failed.

use std::sync::Arc;

use capstan_hooks::HookError;
use capstan_hooks::args::ErrorReport;
use capstan_tape::StoreError;

/// Why a turn failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TurnError {
    /// A hook failed.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The run failed.
    #[error("the run failed: {0}")]
    Run(RunError),
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
    /// Another process worked on the session for longer than the event could wait.
    #[error("the session is being worked on by another process")]
    Busy,
    /// As many events as may waited in the session already.
    #[error("too many messages wait in this conversation; please send this one again later")]
    QueueFull,
    /// The run took longer than it may.
    #[error("the run did not end within its deadline")]
    Timeout,
    /// The journal failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The binding names a runner that is not there.
    #[error("there is no runner {0}")]
    UnknownRunner(capstan_protocol::RunnerId),
}

/// A run that failed, as its runner told it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// What happened, fit to be shown.
    pub message: String,
    /// A stable code, where there is one.
    pub code: Option<String>,
}

impl TurnError {
    /// A stable code, which has a page in the documentation.
    pub fn code(&self) -> &str {
        match self {
            Self::Hook(_) => "hook-failed",
            Self::Run(failure) => failure.code.as_deref().unwrap_or("run-failed"),
            Self::Cancelled => "run-cancelled",
            Self::Busy => "session-busy",
            Self::QueueFull => "queue-full",
            Self::Timeout => "run-timeout",
            Self::Store(error) => error.code(),
            Self::UnknownRunner(_) => "runner-unknown",
        }
    }

    /// Whether a code tells of the host or its store, and not of what a runner did.
    pub fn is_host_code(code: &str) -> bool {
        const OWN: [&str; 7] = [
            "hook-failed",
            "run-cancelled",
            "session-busy",
            "queue-full",
            "run-timeout",
            "runner-unknown",
            "disk-full",
        ];
        OWN.contains(&code) || ["store-", "tape-"].iter().any(|beginning| code.starts_with(beginning))
    }

    /// What a user may see: no secret, no internal path.
    pub fn public_message(&self) -> String {
        match self {
            Self::Hook(failure) => format!("{} of plugin {} failed", failure.hook, failure.plugin),
            Self::Run(failure) => failure.message.clone(),
            Self::Cancelled | Self::Busy | Self::QueueFull | Self::Timeout | Self::UnknownRunner(_) => self.to_string(),
            Self::Store(StoreError::DiskFull { .. }) => "the disk is full".to_owned(),
            Self::Store(_) => "the store failed".to_owned(),
        }
    }

    /// The error as observers are told it.
    pub fn to_report(&self) -> ErrorReport {
        ErrorReport { detail: Arc::from(self.to_string()), public: Arc::from(self.public_message()) }
    }
}
