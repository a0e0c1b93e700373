//! Starting a command, and reading what it says.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use capstan_hooks::SecretMasker;
use capstan_hooks::contracts::ToolError;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio_util::task::AbortOnDropHandle;

use super::command_output::{CommandOutput, OutputState};
use super::environment;
use super::process_selector::COMMAND_MARK_VARIABLE;
use super::process_tree::ProcessTree;
use super::watchdog::{CommandWatchdog, WatchGuard};

/// How long the rest of the output is waited for when the command has ended.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A command that is to be run.
#[derive(Debug)]
pub(super) struct ShellCommand {
    pub(super) command: String,
    pub(super) folder: PathBuf,
    /// What is masked in what it says.
    pub(super) secrets: SecretMasker,
}

/// A command that runs. When it is dropped, everything it started is ended.
pub(super) struct RunningCommand {
    child: Child,
    process_tree: ProcessTree,
    output: Arc<Mutex<CommandOutput>>,
    reader: AbortOnDropHandle<()>,
    /// Last: it is watched until everything it started is ended.
    _watch_guard: Option<WatchGuard>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandExit {
    /// By itself, well.
    Success,
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(Option<i32>),
    /// Its time was up.
    TimedOut(Duration),
    /// Somebody ended it.
    Killed,
}

impl RunningCommand {
    /// Starts a command with a clean environment, no input, and both its outputs in one pipe, so that their order is kept.
    /// No more than `most` bytes of what it says are kept.
    pub(super) fn spawn(
        order: &ShellCommand,
        mark: String,
        added: &[String],
        watch: &Arc<CommandWatchdog>,
        most: usize,
    ) -> Result<Self, ToolError> {
        let cannot = |what: &str, error: &std::io::Error| ToolError::new(format!("cannot {what}: {error}"));
        let (reader, writer) = std::io::pipe().map_err(|error| cannot("make a pipe", &error))?;
        let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader));
        let reader = reader.map_err(|error| cannot("read a pipe", &error))?;
        let errors = writer.try_clone().map_err(|error| cannot("make a pipe", &error))?;
        let mut shell = detached_shell();
        shell.arg("-c").arg(&order.command).current_dir(&order.folder);
        shell.stdin(Stdio::null()).stdout(Stdio::from(writer)).stderr(Stdio::from(errors));
        shell
            .env_clear()
            .envs(environment::filter_variables(std::env::vars_os(), added))
            .env(COMMAND_MARK_VARIABLE, &mark);
        shell.kill_on_drop(true);
        watch.ensure_started();
        let child = shell.spawn().map_err(|error| {
            if order.folder.is_dir() {
                cannot("start the shell", &error)
            } else {
                ToolError::new(format!("{} is no folder", order.folder.display()))
            }
        })?;
        // It holds the other end of the pipe.
        drop(shell);
        let watched = child.id().map(|leader| watch.watch_group(leader));
        let tree = ProcessTree::new(child.id(), mark);
        let said = Arc::new(Mutex::new(CommandOutput::with_max_bytes(most, &order.secrets)));
        let reader = AbortOnDropHandle::new(tokio::spawn(pump_output(reader, Arc::clone(&said))));
        Ok(Self { child, process_tree: tree, output: said, reader, _watch_guard: watched })
    }

    /// What it says.
    pub(super) fn output(&self) -> Arc<Mutex<CommandOutput>> {
        Arc::clone(&self.output)
    }

    /// Waits for its end, for no longer than this.
    pub(super) async fn wait(&mut self, limit: Option<Duration>) -> std::io::Result<CommandExit> {
        let Some(limit) = limit else { return self.child.wait().await.map(CommandExit::from) };
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => status.map(CommandExit::from),
            // A host that was stopped for a while finds both: that it has ended, and that its time is up.
            Err(_) => Ok(self.child.try_wait()?.map_or(CommandExit::TimedOut(limit), CommandExit::from)),
        }
    }

    /// Ends what it left, and waits for the rest of what it says.
    pub(super) async fn finish(mut self, end: CommandExit) {
        match end {
            CommandExit::Success | CommandExit::Code(_) | CommandExit::Signal(_) => self.process_tree.kill_group(),
            CommandExit::TimedOut(_) | CommandExit::Killed => self.process_tree.kill_all().await,
        }
        if tokio::time::timeout(OUTPUT_DRAIN_TIMEOUT, &mut self.reader).await.is_err() {
            // Something that left the group still holds the pipe.
            self.process_tree.kill_all().await;
            let _given_up = tokio::time::timeout(OUTPUT_DRAIN_TIMEOUT, &mut self.reader).await;
        }
        self.process_tree.disarm();
    }
}

/// The text that was said since the last time.
pub(super) fn take_new_output(said: &Mutex<CommandOutput>, more: OutputState) -> String {
    said.lock().unwrap_or_else(PoisonError::into_inner).take_new(more)
}

/// A shell in a group of its own, and away from the terminal, if there is one: whoever asks for a password there would
/// wait for ever, and write over what is on it.
fn detached_shell() -> Command {
    static DETACH_FROM_TERMINAL: LazyLock<bool> =
        LazyLock::new(|| File::open("/dev/tty").is_ok() && is_on_path("setsid"));
    if *DETACH_FROM_TERMINAL {
        let mut shell = Command::new("setsid");
        shell.arg("bash");
        shell
    } else {
        let mut shell = Command::new("bash");
        shell.process_group(0);
        shell
    }
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
}

async fn pump_output(mut pipe: pipe::Receiver, said: Arc<Mutex<CommandOutput>>) {
    let mut buffer = vec![0; 8192];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        said.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..count]);
    }
}

impl From<ExitStatus> for CommandExit {
    fn from(status: ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        match status.code() {
            Some(0) => Self::Success,
            Some(code) => Self::Code(code),
            None => Self::Signal(status.signal()),
        }
    }
}

impl std::fmt::Display for CommandExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Success => f.write_str("ended"),
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(None) => f.write_str("ended with a signal"),
            Self::Signal(Some(signal)) => write!(f, "ended with signal {signal}"),
            Self::TimedOut(limit) => write!(f, "ended after {} seconds", limit.as_secs()),
            Self::Killed => f.write_str("was ended"),
        }
    }
}
