//! Features of this machine that the sandbox depends on.

use serde::Serialize;

use crate::closed_folders::{ClosedFolders, FolderClosure};
use crate::error::SandboxError;
use crate::helper::PROBE_ARGUMENT;
use crate::helper_program::HelperProgram;
use crate::limits::has_namespaced_pid_max;
use crate::sys;
use crate::tree_command::{IsolationPolicy, TreeCommand};

/// Directory that a probe closes. It exists everywhere, and no program is in it.
const PROBED_FOLDER: &str = "/etc";

/// Features that this machine can enforce for commands of this user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxSupport {
    /// Release of the kernel.
    pub kernel: String,
    /// PID namespaces, with mounts of their own.
    pub pid_namespace: FeatureSupport,
    /// Subreapers, the isolation of trees without PID namespaces.
    pub subreaper: FeatureSupport,
    /// Version of landlock.
    pub landlock_abi: Option<u32>,
    /// Mechanism that closes directories; `None` if there is none.
    pub folder_closure: Option<FolderClosure>,
    /// Mechanism that limits the number of processes.
    pub process_limit: ProcessLimit,
}

/// State of one feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureSupport {
    /// Works.
    Available,
    /// Does not work, for this reason.
    Missing(String),
}

/// Mechanism that limits the number of processes of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessLimit {
    /// `RLIMIT_NPROC`.
    UserLimit,
    /// `pid_max` of the PID namespace, for root.
    NamespaceLimit,
    /// None: root without a PID namespace of its own limit.
    Unlimited,
}

impl SandboxSupport {
    /// Finds out by trying: starts commands with each kind of isolation.
    pub async fn probe(helper: &HelperProgram) -> Self {
        let (pid_namespace, hidden) = try_isolation(helper, IsolationPolicy::RequireNamespace).await;
        let (subreaper, closed) = try_isolation(helper, IsolationPolicy::SubreaperOnly).await;
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let is_root = rustix::process::geteuid().is_root();
        let process_limit = match pid_namespace {
            _ if !is_root => ProcessLimit::UserLimit,
            FeatureSupport::Available if has_namespaced_pid_max(&kernel) => ProcessLimit::NamespaceLimit,
            FeatureSupport::Available | FeatureSupport::Missing(_) => ProcessLimit::Unlimited,
        };
        Self {
            kernel,
            pid_namespace,
            subreaper,
            landlock_abi: sys::landlock_abi().ok(),
            folder_closure: hidden.or(closed),
            process_limit,
        }
    }
}

impl FeatureSupport {
    /// Returns true if the feature works.
    pub fn is_available(&self) -> bool {
        *self == Self::Available
    }
}

/// Runs a command that does nothing, with closed directories where they can be closed.
async fn try_isolation(helper: &HelperProgram, isolation: IsolationPolicy) -> (FeatureSupport, Option<FolderClosure>) {
    let command = TreeCommand::new(helper.path()).arg(PROBE_ARGUMENT).helper(helper.clone()).isolation(isolation);
    let command = command.closed_folders(ClosedFolders::new(PROBED_FOLDER).allow_unenforced());
    let missing = |error: SandboxError| (FeatureSupport::Missing(error.to_string()), None);
    match command.spawn().await {
        Ok(mut tree) => match tree.wait().await {
            Ok(exit) if exit.is_success() => {
                let closure = tree.folder_closure().filter(|closure| *closure != FolderClosure::NotEnforced);
                (FeatureSupport::Available, closure)
            }
            Ok(exit) => (FeatureSupport::Missing(format!("a command that does nothing {exit}")), None),
            Err(error) => missing(error),
        },
        Err(error) => missing(error),
    }
}
