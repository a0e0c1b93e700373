//! Messages between the host and the helper of one tree.

use std::ffi::OsString;
use std::io;

use serde::{Deserialize, Serialize};

use crate::closed_folders::{FolderClosure, FolderRules};
use crate::limits::ResourceLimits;

/// Description of the command, sent as a file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    /// Working directory; the root directory if there is none.
    pub(crate) folder: Option<OsString>,
    /// Complete environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) isolation: TreeIsolation,
    pub(crate) limits: ResourceLimits,
    pub(crate) closed_folders: Option<FolderRules>,
}

/// Way in which all processes of a tree are found and ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeIsolation {
    /// A PID namespace: the kernel ends every process of the tree with its first one.
    PidNamespace,
    /// Subreapers: orphans of the tree become children of the helper, which kills all its descendants.
    Subreaper,
}

/// First message of the host; its files are the [`LaunchRequest`] and the standard streams.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchHeader {}

/// Message of the helper to the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperReport {
    /// The init process is running; with its pidfd.
    InitStarted,
    /// The main process is running; with its pidfd.
    Launched {
        /// Mechanism that closes directories, if there are any.
        closure: Option<FolderClosure>,
    },
    /// The command was not started.
    Failed(LaunchFailure),
    /// The main process has exited.
    Exited(TreeExit),
    /// Processes of the tree that the helper may not kill are still running.
    Unkillable {
        /// Number of these processes.
        count: usize,
    },
}

/// Exit of the main process of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeExit {
    /// Exited with this code.
    Code(i32),
    /// Killed by this signal, which the host did not send.
    Signal(i32),
    /// Killed together with its tree by [`ProcessTree::kill`](crate::ProcessTree::kill), before it had exited.
    Killed,
}

impl TreeExit {
    /// Returns true for exit code 0.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl std::fmt::Display for TreeExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Self::Killed => f.write_str("was killed by the host"),
        }
    }
}

/// Step of a launch that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LaunchStep {
    Helper,
    Namespace,
    ClosedFolders,
    Limits,
    WorkingFolder,
    Program,
}

/// Reason for a command that was not started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchFailure {
    pub(crate) step: LaunchStep,
    /// System call or file that failed.
    pub(crate) action: String,
    /// Error number, if the system reported the failure.
    pub(crate) os_error: Option<i32>,
    pub(crate) message: String,
}

impl LaunchFailure {
    /// Failure of an action of the operating system.
    pub(crate) fn new(step: LaunchStep, action: impl Into<String>, error: &io::Error) -> Self {
        Self { step, action: action.into(), os_error: error.raw_os_error(), message: error.to_string() }
    }

    /// Returns the failure as an error with the kind that the system reported.
    pub(crate) fn to_io_error(&self) -> io::Error {
        self.os_error.map_or_else(|| io::Error::other(self.message.clone()), io::Error::from_raw_os_error)
    }
}

/// Adds step and action to an error.
pub(crate) trait LaunchContext<T> {
    fn at(self, step: LaunchStep, action: &str) -> Result<T, LaunchFailure>;
}

impl<T, E: Into<io::Error>> LaunchContext<T> for Result<T, E> {
    fn at(self, step: LaunchStep, action: &str) -> Result<T, LaunchFailure> {
        self.map_err(|error| LaunchFailure::new(step, action, &error.into()))
    }
}
