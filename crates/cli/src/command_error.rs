//! Failure of a command: a stable code, a message, a hint and an exit class.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;

use capstan_protocol::{CodedError, ErrorCode, ExitClass, FailureCode};

/// A command that failed. Each code has a page in `docs/errors/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandError {
    /// Stable code.
    pub code: FailureCode,
    /// Description of the failure.
    pub message: String,
    /// Advice to the user; empty where there is none.
    pub hint: String,
    /// Exit class of the process.
    pub exit: ExitClass,
}

impl CommandError {
    /// A failure with the hint and the exit class of its code.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), hint: code.hint().to_owned(), exit: code.exit_class() }
    }

    /// Replaces the hint of the code by one that is specific to this failure.
    pub(crate) fn with_hint(self, hint: &str) -> Self {
        Self { hint: hint.to_owned(), ..self }
    }

    /// Replaces the exit class of the code.
    pub(crate) fn with_exit(self, exit: ExitClass) -> Self {
        Self { exit, ..self }
    }

    pub(crate) fn workspace_error(path: &Path, reason: &str) -> Self {
        let message = format!("the workspace {} cannot be used: {reason}", path.display());
        Self::new(ErrorCode::WorkspaceMissing, message)
    }

    pub(crate) fn home_error(path: &Path, error: &io::Error) -> Self {
        let code = if is_out_of_space(error) { ErrorCode::DiskFull } else { ErrorCode::HomeUnusable };
        Self::new(code, format!("cannot make {}: {error}", path.display()))
    }
}

/// Returns true if a write failed for lack of space: of the disk, of a quota, or of the allowed size of a file.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "\nhint: {}", self.hint) }
    }
}

impl std::error::Error for CommandError {}

impl<E: CodedError + fmt::Display> From<E> for CommandError {
    fn from(error: E) -> Self {
        let code: FailureCode = error.code().into();
        let hint = error.hint().unwrap_or(code.hint()).to_owned();
        Self { message: error.message(), exit: error.exit_class(), code, hint }
    }
}
