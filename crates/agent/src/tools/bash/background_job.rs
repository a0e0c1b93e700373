//! A command in the background.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_protocol::SessionId;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::command_output::{CommandOutput, OutputState};
use super::running_command::{CommandExit, RunningCommand, ShellCommand, take_new_output};

/// How long a job that is ended may take to be gone.
const JOB_KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of a command is shown in a list.
const LISTED_COMMAND_CHARS: usize = 80;

/// A command in the background. It ends with this.
pub(super) struct BackgroundJob {
    pub(super) id: String,
    pub(super) session: SessionId,
    /// The beginning of its command.
    command: String,
    output: Arc<Mutex<CommandOutput>>,
    exit: watch::Receiver<Option<CommandExit>>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl BackgroundJob {
    /// A job that sees a command through, for no longer than this.
    pub(super) fn new(
        id: String,
        session: SessionId,
        order: &ShellCommand,
        mut shell: RunningCommand,
        limit: Option<Duration>,
    ) -> Self {
        let (tell, end) = watch::channel(None);
        let (said, stop) = (shell.output(), CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let ended = tokio::select! {
                () = stopped.cancelled() => CommandExit::Killed,
                ended = shell.wait(limit) => ended.unwrap_or(CommandExit::Signal(None)),
            };
            shell.finish(ended).await;
            tell.send_replace(Some(ended));
        });
        let command = order.secrets.first_chars(&order.command, LISTED_COMMAND_CHARS).replace('\n', " ");
        Self { id, session, command, output: said, exit: end, cancel: stop, task }
    }

    pub(super) fn is_running(&self) -> bool {
        self.exit.borrow().is_none()
    }

    /// Waits for its end, for no longer than this.
    pub(super) async fn wait_exit(&self, wait: Duration) {
        let mut end = self.exit.clone();
        // What it came to is asked afterwards.
        let _waited = tokio::time::timeout(wait, end.wait_for(Option::is_some)).await;
    }

    /// Ends it with everything it started.
    pub(super) async fn kill(&self) {
        self.cancel.cancel();
        self.wait_exit(JOB_KILL_TIMEOUT).await;
    }

    /// What it said since the last time, and how it stands.
    pub(super) fn new_output(&self) -> String {
        // First: what it says after this is said by one that runs.
        let end = *self.exit.borrow();
        let text = take_new_output(&self.output, if end.is_some() { OutputState::Closed } else { OutputState::Open });
        let status = match end {
            None => format!("[{} is running]", self.id),
            Some(end) => format!("[{} {end}]", self.id),
        };
        match text.trim_end() {
            "" => status,
            text => format!("{text}\n{status}"),
        }
    }

    /// The job in a line.
    pub(super) fn summary_line(&self) -> String {
        let status = self.exit.borrow().map_or_else(|| "is running".to_owned(), |end| end.to_string());
        format!("{} {status}: {}", self.id, self.command)
    }
}

impl Drop for BackgroundJob {
    fn drop(&mut self) {
        // The command goes with its task.
        self.task.abort();
    }
}
