//! Directory that the host under test shares with the test, for the barriers and records of a trial.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Shared directory of a trial. It contains the home of the host. The test creates it, and the host finds it through
/// [`TrialDir::DIR_VARIABLE`].
#[derive(Debug, Clone)]
pub struct TrialDir {
    root: PathBuf,
    /// Number of the host process within the trial, starting at 1; 0 in the test itself.
    pub process: u32,
}

impl TrialDir {
    /// Environment variable with the path of the shared directory.
    pub const DIR_VARIABLE: &str = "CRASH_DIR";
    /// Environment variable with the number of the host process.
    pub const PROCESS_VARIABLE: &str = "CRASH_PROCESS";
    /// Environment variable that makes a plugin answer in place of the agent.
    pub const STAND_IN_VARIABLE: &str = "CRASH_STAND_IN";
    /// Environment variable that binds marked events to the state runner.
    pub const STATE_RUNNER_VARIABLE: &str = "CRASH_STATE_RUNNER";
    /// Environment variable that makes the host multi-threaded. By default the host has one thread, so that a script
    /// always makes the same commits in the same order.
    pub const THREADS_VARIABLE: &str = "CRASH_THREADS";

    /// Uses a directory as the given process. Creates nothing on disk.
    pub fn new(root: impl Into<PathBuf>, process: u32) -> Self {
        Self { root: root.into(), process }
    }

    /// Reads the directory and the number of the process from the environment.
    ///
    /// # Panics
    ///
    /// Panics if an environment variable is missing, or the number is not valid.
    pub fn from_env() -> Self {
        let root = std::env::var_os(Self::DIR_VARIABLE).expect("the directory of the trial");
        let process = std::env::var(Self::PROCESS_VARIABLE).ok().and_then(|number| number.parse().ok());
        Self::new(root, process.expect("the number of this process"))
    }

    /// Returns the path of the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of the socket on which the fake platform of the test listens.
    pub fn socket_path(&self) -> PathBuf {
        self.root.join("platform")
    }

    /// Returns the path of the file with all tool executions, one per line.
    pub fn executions_file(&self) -> PathBuf {
        self.root.join("executions")
    }

    /// Returns the path of the file whose existence opens the barrier `key`.
    pub fn barrier_file(&self, key: &str) -> PathBuf {
        self.root.join(format!("barrier-{key}"))
    }

    /// Records a tool execution. Called before the effect, and synced, so that a kill cannot lose the record of an effect.
    pub fn record_execution(&self, tool: &str, key: &str) -> std::io::Result<()> {
        let mut file = File::options().create(true).append(true).open(self.executions_file())?;
        // A single write: other processes append to the file concurrently.
        file.write_all(format!("{tool} {key}\n").as_bytes())?;
        file.sync_all()
    }
}
