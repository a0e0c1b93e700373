//! Start of a command, and collection of its output.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use capstan_hooks::SecretMasker;
use capstan_hooks::contracts::ToolError;
use capstan_protocol::is_file_limit_error;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio_util::task::AbortOnDropHandle;

use super::command_output::{CommandOutput, OutputState};
use super::command_processes::CommandProcesses;
use super::environment;
use super::process_selector::COMMAND_MARK_VARIABLE;
use super::watchdog::{CommandWatchdog, WatchGuard};
use crate::tools::count_noun;

/// Maximum wait for the rest of the output after the command has exited.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Command to run.
#[derive(Debug)]
pub(super) struct ShellCommand {
    pub(super) command: String,
    pub(super) folder: PathBuf,
    /// Secrets to mask in the output.
    pub(super) secrets: SecretMasker,
}

/// Settings of all commands of a host.
#[derive(Debug)]
pub(super) struct CommandOptions {
    /// Variables the user adds to the environment of commands.
    pub(super) extra_variables: Vec<String>,
    /// Soft limit of open files; `None` leaves that of this process.
    pub(super) file_limit: Option<u64>,
}

/// Script that sets the soft limit of open files before the command: the host raises its own, and some programs become
/// slow or fail under a high limit.
const FILE_LIMIT_SCRIPT: &str = r#"ulimit -Sn "$0"; exec bash -c "$1""#;

/// Failure to start a command.
#[derive(Debug)]
pub(super) enum SpawnError {
    /// No file descriptor is free. The command was not started, and may be started later.
    FileLimit,
    /// Any other failure.
    Failed(ToolError),
}

impl SpawnError {
    /// Failure of an action of the operating system.
    fn new(action: &str, error: &std::io::Error) -> Self {
        if is_file_limit_error(error) {
            return Self::FileLimit;
        }
        Self::Failed(ToolError::new(format!("cannot {action}: {error}")))
    }
}

/// Running command. Dropping it kills everything it started.
pub(super) struct RunningCommand {
    child: Child,
    process_tree: CommandProcesses,
    output: Arc<Mutex<CommandOutput>>,
    reader: AbortOnDropHandle<()>,
    /// Declared last, so that the command is watched until all its processes are killed.
    _watch_guard: Option<WatchGuard>,
}

/// Outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandExit {
    /// Exited with code 0.
    Success,
    /// Exited with another code.
    Code(i32),
    /// Killed by a signal.
    Signal(Option<i32>),
    /// Killed after its timeout.
    TimedOut(Duration),
    /// Killed on request.
    Killed,
}

impl RunningCommand {
    /// Starts a command with a filtered environment, no input, and stdout and stderr in one pipe to preserve their
    /// order. At most `max_output` bytes of output are kept.
    pub(super) fn spawn(
        command: &ShellCommand,
        mark: String,
        options: &CommandOptions,
        watchdog: &Arc<CommandWatchdog>,
        max_output: usize,
    ) -> Result<Self, SpawnError> {
        let (reader, writer) = std::io::pipe().map_err(|error| SpawnError::new("create a pipe", &error))?;
        let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader));
        let reader = reader.map_err(|error| SpawnError::new("read a pipe", &error))?;
        let errors = writer.try_clone().map_err(|error| SpawnError::new("create a pipe", &error))?;
        let mut shell = detached_shell();
        match options.file_limit {
            None => shell.arg("-c").arg(&command.command),
            Some(limit) => shell.arg("-c").arg(FILE_LIMIT_SCRIPT).arg(limit.to_string()).arg(&command.command),
        };
        shell.current_dir(&command.folder);
        shell.stdin(Stdio::null()).stdout(Stdio::from(writer)).stderr(Stdio::from(errors));
        shell
            .env_clear()
            .envs(environment::filter_variables(std::env::vars_os(), &options.extra_variables))
            .env(COMMAND_MARK_VARIABLE, &mark);
        shell.kill_on_drop(true);
        watchdog.ensure_started();
        let child = shell.spawn().map_err(|error| {
            if command.folder.is_dir() {
                SpawnError::new("start the shell", &error)
            } else {
                SpawnError::Failed(ToolError::new(format!("{} is not a folder", command.folder.display())))
            }
        })?;
        // The builder holds the write end of the pipe.
        drop(shell);
        let watch_guard = child.id().map(|leader| watchdog.watch_group(leader));
        let process_tree = CommandProcesses::new(child.id(), mark);
        let output = Arc::new(Mutex::new(CommandOutput::with_max_bytes(max_output, &command.secrets)));
        let reader = AbortOnDropHandle::new(tokio::spawn(pump_output(reader, Arc::clone(&output))));
        Ok(Self { child, process_tree, output, reader, _watch_guard: watch_guard })
    }

    /// Returns the output buffer.
    pub(super) fn output(&self) -> Arc<Mutex<CommandOutput>> {
        Arc::clone(&self.output)
    }

    /// Waits for the exit, at most for `limit`.
    pub(super) async fn wait(&mut self, limit: Option<Duration>) -> std::io::Result<CommandExit> {
        let Some(limit) = limit else { return self.child.wait().await.map(CommandExit::from) };
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => status.map(CommandExit::from),
            // After the host was suspended, both may hold: the command has exited, and its timeout has passed.
            Err(_) => Ok(self.child.try_wait()?.map_or(CommandExit::TimedOut(limit), CommandExit::from)),
        }
    }

    /// Kills processes the command left behind and waits for the rest of its output.
    pub(super) async fn finish(mut self, exit: CommandExit) {
        match exit {
            CommandExit::Success | CommandExit::Code(_) | CommandExit::Signal(_) => self.process_tree.kill_group(),
            CommandExit::TimedOut(_) | CommandExit::Killed => self.process_tree.kill_all().await,
        }
        if tokio::time::timeout(OUTPUT_DRAIN_TIMEOUT, &mut self.reader).await.is_err() {
            // A process that left the group still holds the pipe.
            self.process_tree.kill_all().await;
            let _given_up = tokio::time::timeout(OUTPUT_DRAIN_TIMEOUT, &mut self.reader).await;
        }
        self.process_tree.disarm();
    }
}

/// Returns the output since the last call.
pub(super) fn take_new_output(output: &Mutex<CommandOutput>, state: OutputState) -> String {
    output.lock().unwrap_or_else(PoisonError::into_inner).take_new(state)
}

/// Creates a shell in its own process group, detached from the terminal if there is one: a password prompt there would
/// wait forever and garble the screen.
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

async fn pump_output(mut pipe: pipe::Receiver, output: Arc<Mutex<CommandOutput>>) {
    let mut buffer = vec![0; 8192];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        output.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..count]);
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
            Self::Success => f.write_str("exited"),
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(None) => f.write_str("was killed by a signal"),
            Self::Signal(Some(signal)) => write!(f, "was killed by signal {signal}"),
            Self::TimedOut(limit) => write!(f, "timed out after {}", count_noun(limit.as_secs(), "second")),
            Self::Killed => f.write_str("was killed"),
        }
    }
}
