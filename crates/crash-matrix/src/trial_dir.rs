//! Directory that the host under test shares with the test.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Directory outside the home. The test creates it, and the host finds it through [`TrialDir::DIR_VARIABLE`].
#[derive(Debug, Clone)]
pub struct TrialDir {
    root: PathBuf,
    /// Number of this process, starting at 1.
    pub process: u32,
}

impl TrialDir {
    /// Environment variable with the directory.
    pub const DIR_VARIABLE: &str = "CRASH_DIR";
    /// Environment variable with the number of the process.
    pub const PROCESS_VARIABLE: &str = "CRASH_PROCESS";
    /// Environment variable that makes a plugin answer in place of the agent.
    pub const STAND_IN_VARIABLE: &str = "CRASH_STAND_IN";
    /// Environment variable that binds marked events to the state runner.
    pub const STATE_RUNNER_VARIABLE: &str = "CRASH_STATE_RUNNER";
    /// Environment variable that gives the host several threads. With one thread, a script always makes the same
    /// commits in the same order.
    pub const THREADS_VARIABLE: &str = "CRASH_THREADS";

    /// Creates the handle of a process for a directory.
    pub fn new(root: impl Into<PathBuf>, process: u32) -> Self {
        Self { root: root.into(), process }
    }

    /// Creates the handle from the environment.
    ///
    /// # Panics
    ///
    /// Panics if the environment variables are missing.
    pub fn from_env() -> Self {
        let root = std::env::var_os(Self::DIR_VARIABLE).expect("the directory of the trial");
        let process = std::env::var(Self::PROCESS_VARIABLE).ok().and_then(|number| number.parse().ok());
        Self::new(root, process.expect("the number of this process"))
    }

    /// Returns the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the socket of the platform.
    pub fn socket_path(&self) -> PathBuf {
        self.root.join("platform")
    }

    /// Returns the file with all tool executions, one per line.
    pub fn executions_file(&self) -> PathBuf {
        self.root.join("executions")
    }

    /// Returns the file whose existence opens a barrier.
    pub fn barrier_file(&self, key: &str) -> PathBuf {
        self.root.join(format!("barrier-{key}"))
    }

    /// Records an execution on disk before it happens.
    pub fn record_execution(&self, tool: &str, key: &str) -> std::io::Result<()> {
        let mut file = File::options().create(true).append(true).open(self.executions_file())?;
        // One write, since other processes append concurrently.
        file.write_all(format!("{tool} {key}\n").as_bytes())?;
        file.sync_all()
    }
}
