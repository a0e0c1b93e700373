//! Errors of starting and supervising process trees.

use std::io;
use std::path::PathBuf;

/// Error of starting or supervising a process tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The helper process could not be started, or failed in its own work.
    #[error("cannot start the sandbox helper: {action}: {source}")]
    Helper {
        /// Step that failed.
        action: String,
        /// Reason.
        source: io::Error,
    },
    /// The helper process ended without a report.
    #[error(
        "the sandbox helper ended without a report: it was killed, or `{}` does not call `run_helper` first in `main`",
        program.display()
    )]
    HelperEnded {
        /// Executable of the helper.
        program: PathBuf,
    },
    /// The machine allows no PID namespace, and the command requires one.
    #[error(
        "this machine does not allow a PID namespace ({action}: {source}); \
         enable user namespaces (sysctl user.max_user_namespaces) or run as root with CAP_SYS_ADMIN"
    )]
    Namespace {
        /// Step that failed.
        action: String,
        /// Reason.
        source: io::Error,
    },
    /// A directory that is to be closed or kept open is not usable.
    #[error("cannot close {}: {source}", folder.display())]
    ClosedFolder {
        /// Directory as given.
        folder: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// The machine can close no directories, and the command requires it.
    #[error(
        "this machine cannot close directories to a command ({reason}); \
         use a kernel with landlock (5.13 or later, with landlock among its security modules), enable user namespaces, \
         or allow commands to run without closed directories"
    )]
    ClosureUnavailable {
        /// Mechanisms that are missing.
        reason: String,
    },
    /// A limit could not be set.
    #[error("cannot limit {limit}: {source}")]
    Limits {
        /// Resource.
        limit: String,
        /// Reason.
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("cannot enter the working directory {folder}: {source}")]
    WorkingFolder {
        /// Directory.
        folder: String,
        /// Reason.
        source: io::Error,
    },
    /// The program cannot be executed.
    #[error("cannot run {program}: {source}")]
    Program {
        /// Program as given.
        program: String,
        /// Reason.
        source: io::Error,
    },
}
