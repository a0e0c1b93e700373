//! Commands and witnesses of the tests.

use std::path::{Path, PathBuf};

use capstan_sandbox::{IsolationPolicy, ProcessTree, SandboxError, TreeCommand, TreeStdio};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;

/// Script of a process that leaves its parent, its session and its standard streams, and holds the FIFO `$1` open.
pub(crate) const DAEMON_SCRIPT: &str = r#"
setsid -f setsid -f sh -c 'exec 9>"$0"; echo ready >&9; exec sleep 1000' "$1" </dev/null >/dev/null 2>&1
"#;

/// FIFO that a process of a tree holds open: its end is the end of the process.
pub(crate) struct WitnessFifo {
    folder: TempDir,
}

/// Reading end of a [`WitnessFifo`] that a process has opened.
pub(crate) struct WitnessReader {
    lines: BufReader<pipe::Receiver>,
}

impl WitnessFifo {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            folder.path().join("witness"),
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("witness")
    }

    /// Waits until a process has opened the FIFO and written `ready`.
    pub(crate) async fn opened(&self) -> WitnessReader {
        let path = self.path();
        let file = tokio::task::spawn_blocking(move || std::fs::File::open(path)).await.unwrap().unwrap();
        let mut lines = BufReader::new(pipe::Receiver::from_file(file).unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).await.unwrap();
        assert_eq!(line, "ready\n");
        WitnessReader { lines }
    }
}

impl WitnessReader {
    /// Waits until no process holds the FIFO. Returns the lines written meanwhile.
    pub(crate) async fn closed(mut self) -> String {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).await.unwrap();
        rest
    }
}

/// Command that runs a shell script. `PATH` is inherited.
pub(crate) fn shell(script: &str) -> TreeCommand {
    TreeCommand::new("sh").arg("-c").arg(script).arg("sh").inherit_env(&["PATH"])
}

/// Command that starts a daemon and then runs a script.
pub(crate) fn daemon_and(witness: &Path, script: &str) -> TreeCommand {
    shell(&format!("{DAEMON_SCRIPT}\n{script}")).arg(witness)
}

/// Starts a command, unless the machine lacks what the policy requires.
pub(crate) async fn spawn_with(command: TreeCommand, policy: IsolationPolicy) -> Option<ProcessTree> {
    match command.isolation(policy).spawn().await {
        Err(SandboxError::Namespace { action, source }) if policy == IsolationPolicy::RequireNamespace => {
            eprintln!("not tested: no PID namespace on this machine: {action}: {source}");
            None
        }
        spawned => Some(spawned.unwrap()),
    }
}

/// Both kinds of isolation.
pub(crate) const POLICIES: [IsolationPolicy; 2] = [IsolationPolicy::RequireNamespace, IsolationPolicy::SubreaperOnly];

/// Runs a command to its end and returns its standard output.
pub(crate) async fn output_of(command: TreeCommand, policy: IsolationPolicy) -> Option<String> {
    let mut tree = spawn_with(command.stdout(TreeStdio::Piped), policy).await?;
    let mut output = String::new();
    tree.stdout.take().unwrap().read_to_string(&mut output).await.unwrap();
    tree.wait().await.unwrap();
    Some(output)
}

/// Returns a field of `/proc/PID/status`.
pub(crate) fn status_field(pid: u32, field: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// Returns the parent of a process.
pub(crate) fn parent_of(pid: u32) -> u32 {
    status_field(pid, "PPid").unwrap().parse().unwrap()
}
