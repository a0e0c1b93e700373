//! Where a host to be killed finds what is outside of it.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A folder beside the home. The test makes it, and the host finds it by [`Place::VARIABLE`].
#[derive(Debug, Clone)]
pub struct TrialDir {
    root: PathBuf,
    /// Which process this is, from 1 on.
    pub process: u32,
}

impl TrialDir {
    /// The variable of the environment that names the folder.
    pub const DIR_VARIABLE: &str = "CRASH_PLACE";
    /// The variable that says which process this is.
    pub const PROCESS_VARIABLE: &str = "CRASH_PROCESS";
    /// The variable that has a plugin answer in place of the agent, when it is set.
    pub const STAND_IN_VARIABLE: &str = "CRASH_STANDS_IN";
    /// The variable that has events served by the keeper that are marked for it, when it is set.
    pub const STATE_RUNNER_VARIABLE: &str = "CRASH_KEEPS";
    /// The variable that gives the host several threads, when it is set. With one, a script always makes the same
    /// commits in the same order.
    pub const THREADS_VARIABLE: &str = "CRASH_THREADS";

    /// The place at this folder, for a process.
    pub fn new(root: impl Into<PathBuf>, process: u32) -> Self {
        Self { root: root.into(), process }
    }

    /// The place that the environment names.
    ///
    /// # Panics
    ///
    /// If the environment names none.
    pub fn from_env() -> Self {
        let root = std::env::var_os(Self::DIR_VARIABLE).expect("the place of this host");
        let process = std::env::var(Self::PROCESS_VARIABLE).ok().and_then(|number| number.parse().ok());
        Self::new(root, process.expect("the number of this process"))
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the platform listens.
    pub fn socket_path(&self) -> PathBuf {
        self.root.join("platform")
    }

    /// Every execution of a tool, a line each.
    pub fn executions_file(&self) -> PathBuf {
        self.root.join("executions")
    }

    /// The file whose presence lets a tool go on that waits at this gate.
    pub fn gate_file(&self, key: &str) -> PathBuf {
        self.root.join(format!("gate-{key}"))
    }

    /// Puts an execution on record, on disk, before it is done.
    pub fn record_execution(&self, tool: &str, key: &str) -> std::io::Result<()> {
        let mut file = File::options().create(true).append(true).open(self.executions_file())?;
        // In one piece: others do the same at the same time.
        file.write_all(format!("{tool} {key}\n").as_bytes())?;
        file.sync_all()
    }
}
