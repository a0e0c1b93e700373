//! Registry of the commands run by a host.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hooks::contracts::ToolError;
use capstan_protocol::{FILE_LIMIT_BACKOFF, SessionId, ToolOutput};

use super::MAX_COMMAND_SECONDS;
use super::background_job::BackgroundJob;
use super::command_output::{MAX_BACKGROUND_OUTPUT_BYTES, MAX_FOREGROUND_OUTPUT_BYTES, OutputState};
use super::process_selector::ProcessSelector;
use super::running_command::{CommandExit, CommandOptions, RunningCommand, ShellCommand, SpawnError, take_new_output};
use super::watchdog::CommandWatchdog;

/// Maximum number of running jobs per session.
const MAX_RUNNING_JOBS_PER_SESSION: usize = 8;
/// Maximum number of running jobs in total.
const MAX_RUNNING_JOBS: usize = 64;
/// Maximum number of finished jobs remembered.
const MAX_FINISHED_JOBS: usize = 64;

/// Commands of a host; background jobs belong to a session. Dropping the registry kills all of them.
pub(crate) struct JobRegistry {
    /// Prefix of the values of `AGENT_COMMAND` that mark processes of this host's commands.
    mark_prefix: String,
    /// Number of the last command.
    command_counter: AtomicU64,
    command_options: CommandOptions,
    /// Kills the commands if this process is killed.
    watchdog: Arc<CommandWatchdog>,
    background: Mutex<Vec<Arc<BackgroundJob>>>,
}

impl JobRegistry {
    /// Creates an empty registry.
    pub(crate) fn new(extra_variables: Vec<String>) -> Self {
        let mark_prefix = capstan_protocol::time_ordered_uuid().simple().to_string();
        let watchdog = Arc::new(CommandWatchdog::new(&mark_prefix));
        Self {
            mark_prefix,
            command_counter: AtomicU64::new(0),
            command_options: CommandOptions { extra_variables, file_limit: None },
            watchdog,
            background: Mutex::default(),
        }
    }

    /// Sets the soft limit of open files of commands.
    pub(crate) fn with_file_limit(mut self, file_limit: Option<u64>) -> Self {
        self.command_options.file_limit = file_limit;
        self
    }

    fn spawn_command(&self, command: &ShellCommand, max_output: usize) -> Result<(u64, RunningCommand), SpawnError> {
        let number = self.command_counter.fetch_add(1, Ordering::Relaxed) + 1;
        // The trailing dash keeps a mark from being a prefix of another.
        Ok((
            number,
            RunningCommand::spawn(
                command,
                format!("{}-{number}-", self.mark_prefix),
                &self.command_options,
                &self.watchdog,
                max_output,
            )?,
        ))
    }

    /// Runs a command until it exits or times out.
    pub(super) async fn run_foreground(
        &self,
        command: ShellCommand,
        timeout: Duration,
    ) -> Result<ToolOutput, ToolError> {
        let (_, mut shell) = spawn_with_retry(|| self.spawn_command(&command, MAX_FOREGROUND_OUTPUT_BYTES)).await?;
        let output = shell.output();
        let exit = shell.wait(Some(timeout)).await.map_err(|error| ToolError::new(error.to_string()))?;
        shell.finish(exit).await;
        let mut text = take_new_output(&output, OutputState::Closed);
        drop(output);
        text.truncate(text.trim_end().len());
        Ok(match exit {
            CommandExit::Success if text.is_empty() => ToolOutput::ok("(no output)"),
            CommandExit::Success => ToolOutput::ok(text),
            CommandExit::TimedOut(_) => {
                let hint = format!("raise timeout_seconds (at most {MAX_COMMAND_SECONDS}), or use background=true");
                failed_output(&text, &format!("{exit}: {hint}"))
            }
            CommandExit::Code(_) | CommandExit::Signal(_) | CommandExit::Killed => {
                failed_output(&text, &exit.to_string())
            }
        })
    }

    /// Starts a background command and returns its job id.
    pub(super) async fn spawn_background(
        &self,
        session: &SessionId,
        command: &ShellCommand,
        timeout: Option<Duration>,
    ) -> Result<String, ToolError> {
        spawn_with_retry(|| self.try_spawn_background(session, command, timeout)).await
    }

    fn try_spawn_background(
        &self,
        session: &SessionId,
        command: &ShellCommand,
        timeout: Option<Duration>,
    ) -> Result<String, SpawnError> {
        let mut jobs = self.lock();
        let running = jobs.iter().filter(|job| job.is_running());
        let in_session = running.clone().filter(|job| job.session == *session).count();
        if in_session >= MAX_RUNNING_JOBS_PER_SESSION || running.count() >= MAX_RUNNING_JOBS {
            let error = ToolError::new("too many background jobs are running; stop one with bash.kill");
            return Err(SpawnError::Failed(error));
        }
        let (number, shell) = self.spawn_command(command, MAX_BACKGROUND_OUTPUT_BYTES)?;
        let id = format!("job-{number}");
        jobs.push(Arc::new(BackgroundJob::new(id.clone(), session.clone(), command, shell, timeout)));
        let finished = jobs.iter().filter(|job| !job.is_running()).count();
        let mut excess = finished.saturating_sub(MAX_FINISHED_JOBS);
        jobs.retain(|job| {
            let remove = excess > 0 && !job.is_running();
            excess -= usize::from(remove);
            !remove
        });
        Ok(id)
    }

    /// Finds a job of a session; jobs of other sessions are not visible.
    pub(super) fn find(&self, session: &SessionId, id: &str) -> Result<Arc<BackgroundJob>, ToolError> {
        let found = self.lock().iter().find(|job| job.session == *session && job.id == id).cloned();
        found.ok_or_else(|| ToolError::new(format!("there is no job {id} here\n{}", self.list(session))))
    }

    /// Lists the jobs of a session, one per line.
    pub(super) fn list(&self, session: &SessionId) -> String {
        let jobs = self.lock();
        let lines: Vec<String> =
            jobs.iter().filter(|job| job.session == *session).map(|job| job.summary_line()).collect();
        if lines.is_empty() { "there are no background jobs".to_owned() } else { lines.join("\n") }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<BackgroundJob>>> {
        self.background.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for JobRegistry {
    /// Also kills processes that left the group of a command which has exited.
    fn drop(&mut self) {
        if self.command_counter.load(Ordering::Relaxed) > 0 {
            ProcessSelector { leader: None, mark: &self.mark_prefix }.kill_all();
        }
    }
}

/// Starts a command; retries while no file descriptor is free. Ends with its future when the run is cancelled.
async fn spawn_with_retry<T>(spawn: impl Fn() -> Result<T, SpawnError>) -> Result<T, ToolError> {
    let mut attempts = 0;
    loop {
        match spawn() {
            Ok(started) => return Ok(started),
            Err(SpawnError::Failed(error)) => return Err(error),
            Err(SpawnError::FileLimit) => attempts += 1,
        }
        if attempts == 1 {
            tracing::warn!("cannot start a command: this host has too many open files; waiting for other turns");
        }
        tokio::time::sleep(FILE_LIMIT_BACKOFF.delay_after(attempts)).await;
    }
}

fn failed_output(text: &str, status: &str) -> ToolOutput {
    ToolOutput::error(format!("{text}\n[{status}]").trim_start().to_owned())
}
