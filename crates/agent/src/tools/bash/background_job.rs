//! Background command of a session.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_protocol::{SessionId, escape_line};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::command_output::{CommandOutput, OutputState};
use super::running_command::{CommandExit, RunningCommand, ShellCommand, take_new_output};

/// Timeout for a killed job to exit.
const JOB_KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a command in listings.
const LISTED_COMMAND_CHARS: usize = 80;

/// Background command. Dropping it kills the command.
pub(super) struct BackgroundJob {
    pub(super) id: String,
    pub(super) session: SessionId,
    /// Beginning of the command, for listings.
    command: String,
    output: Arc<Mutex<CommandOutput>>,
    exit: watch::Receiver<Option<CommandExit>>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl BackgroundJob {
    /// Creates a job that waits for a started command, at most for `limit`.
    pub(super) fn new(
        id: String,
        session: SessionId,
        shell_command: &ShellCommand,
        mut shell: RunningCommand,
        limit: Option<Duration>,
    ) -> Self {
        let (exit_sender, exit) = watch::channel(None);
        let (output, cancel) = (shell.output(), CancellationToken::new());
        let cancelled = cancel.clone();
        let task = tokio::spawn(async move {
            let exit = tokio::select! {
                () = cancelled.cancelled() => CommandExit::Killed,
                exit = shell.wait(limit) => exit.unwrap_or(CommandExit::Signal(None)),
            };
            shell.finish(exit).await;
            exit_sender.send_replace(Some(exit));
        });
        // A terminal that shows the list must not hide a part of the command.
        let command = escape_line(shell_command.secrets.first_chars(&shell_command.command, LISTED_COMMAND_CHARS));
        Self { id, session, command, output, exit, cancel, task }
    }

    pub(super) fn is_running(&self) -> bool {
        self.exit.borrow().is_none()
    }

    /// Waits for the exit, at most for `wait`.
    pub(super) async fn wait_exit(&self, wait: Duration) {
        let mut exit = self.exit.clone();
        // The caller reads the exit afterwards.
        let _waited = tokio::time::timeout(wait, exit.wait_for(Option::is_some)).await;
    }

    /// Kills the command with everything it started.
    pub(super) async fn kill(&self) {
        self.cancel.cancel();
        self.wait_exit(JOB_KILL_TIMEOUT).await;
    }

    /// Returns the output since the last call, and the job's status.
    pub(super) fn new_output(&self) -> String {
        // Read the status before the output: output after this point belongs to a running command.
        let exit = *self.exit.borrow();
        let text = take_new_output(&self.output, if exit.is_some() { OutputState::Closed } else { OutputState::Open });
        let status = match exit {
            None => format!("[{} is running]", self.id),
            Some(exit) => format!("[{} {exit}]", self.id),
        };
        match text.trim_end() {
            "" => status,
            text => format!("{text}\n{status}"),
        }
    }

    /// Describes the job on one line.
    pub(super) fn summary_line(&self) -> String {
        let status = self.exit.borrow().map_or_else(|| "is running".to_owned(), |exit| exit.to_string());
        format!("{} {status}: {}", self.id, self.command)
    }
}

impl Drop for BackgroundJob {
    fn drop(&mut self) {
        // Aborting the task drops, and so kills, the command.
        self.task.abort();
    }
}
