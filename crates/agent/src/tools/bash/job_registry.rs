//! The commands of a host.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hooks::contracts::ToolError;
use capstan_protocol::{SessionId, ToolOutput};

use super::background_job::BackgroundJob;
use super::command_output::{MAX_BACKGROUND_OUTPUT_BYTES, MAX_FOREGROUND_OUTPUT_BYTES, OutputState};
use super::process_selector::ProcessSelector;
use super::running_command::{CommandExit, RunningCommand, ShellCommand, take_new_output};
use super::watchdog::CommandWatchdog;

/// How many jobs of a session may run at a time.
const MAX_SESSION_JOBS: usize = 8;
/// How many jobs may run at a time.
const MAX_RUNNING_JOBS: usize = 64;
/// How many jobs are remembered that have ended.
const MAX_FINISHED_JOBS: usize = 64;

/// The commands of a host, those in the background by the session they belong to. When it is dropped, all of them end.
pub(crate) struct JobRegistry {
    /// How the marks of this host's commands begin.
    mark_prefix: String,
    /// The number of the last command.
    command_counter: AtomicU64,
    /// What the user adds to the environment of commands.
    extra_variables: Vec<String>,
    /// Ends them when this process is killed.
    watchdog: Arc<CommandWatchdog>,
    background: Mutex<Vec<Arc<BackgroundJob>>>,
}

impl JobRegistry {
    /// No commands yet.
    pub(crate) fn new(added: Vec<String>) -> Self {
        let mark = uuid::Uuid::now_v7().simple().to_string();
        let watch = Arc::new(CommandWatchdog::new(&mark));
        Self {
            mark_prefix: mark,
            command_counter: AtomicU64::new(0),
            extra_variables: added,
            watchdog: watch,
            background: Mutex::default(),
        }
    }

    fn spawn_command(&self, order: &ShellCommand, most: usize) -> Result<(u64, RunningCommand), ToolError> {
        let number = self.command_counter.fetch_add(1, Ordering::Relaxed) + 1;
        // The dash keeps the marks of two commands from being the beginning of one another.
        Ok((
            number,
            RunningCommand::spawn(
                order,
                format!("{}-{number}-", self.mark_prefix),
                &self.extra_variables,
                &self.watchdog,
                most,
            )?,
        ))
    }

    /// Runs a command to its end, or until its time is up.
    pub(super) async fn run_foreground(&self, order: ShellCommand, limit: Duration) -> Result<ToolOutput, ToolError> {
        let (_, mut shell) = self.spawn_command(&order, MAX_FOREGROUND_OUTPUT_BYTES)?;
        let said = shell.output();
        let end = shell.wait(Some(limit)).await.map_err(|error| ToolError::new(error.to_string()))?;
        shell.finish(end).await;
        let mut text = take_new_output(&said, OutputState::Closed);
        drop(said);
        text.truncate(text.trim_end().len());
        Ok(match end {
            CommandExit::Success if text.is_empty() => ToolOutput::ok("(no output)"),
            CommandExit::Success => ToolOutput::ok(text),
            CommandExit::TimedOut(_) => {
                failed_output(&text, &format!("{end}: give timeout_seconds, or run it with background=true"))
            }
            CommandExit::Code(_) | CommandExit::Signal(_) | CommandExit::Killed => {
                failed_output(&text, &end.to_string())
            }
        })
    }

    /// Begins a command in the background; gives the id of its job.
    pub(super) fn spawn_background(
        &self,
        session: &SessionId,
        order: &ShellCommand,
        limit: Option<Duration>,
    ) -> Result<String, ToolError> {
        let mut jobs = self.lock();
        let running = jobs.iter().filter(|job| job.is_running());
        let in_session = running.clone().filter(|job| job.session == *session).count();
        if in_session >= MAX_SESSION_JOBS || running.count() >= MAX_RUNNING_JOBS {
            return Err(ToolError::new("too many commands run in the background; end one with bash.kill"));
        }
        let (number, shell) = self.spawn_command(order, MAX_BACKGROUND_OUTPUT_BYTES)?;
        let id = format!("job-{number}");
        jobs.push(Arc::new(BackgroundJob::new(id.clone(), session.clone(), order, shell, limit)));
        let ended = jobs.iter().filter(|job| !job.is_running()).count();
        let mut to_forget = ended.saturating_sub(MAX_FINISHED_JOBS);
        jobs.retain(|job| {
            let forget = to_forget > 0 && !job.is_running();
            to_forget -= usize::from(forget);
            !forget
        });
        Ok(id)
    }

    /// A job of a session. Those of others are nobody's business.
    pub(super) fn find(&self, session: &SessionId, id: &str) -> Result<Arc<BackgroundJob>, ToolError> {
        let found = self.lock().iter().find(|job| job.session == *session && job.id == id).cloned();
        found.ok_or_else(|| ToolError::new(format!("there is no job {id} here\n{}", self.list(session))))
    }

    /// The jobs of a session, a line for each.
    pub(super) fn list(&self, session: &SessionId) -> String {
        let jobs = self.lock();
        let lines: Vec<String> =
            jobs.iter().filter(|job| job.session == *session).map(|job| job.summary_line()).collect();
        if lines.is_empty() { "nothing was run in the background".to_owned() } else { lines.join("\n") }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<BackgroundJob>>> {
        self.background.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for JobRegistry {
    /// Also what commands that have ended left behind outside of their groups.
    fn drop(&mut self) {
        if self.command_counter.load(Ordering::Relaxed) > 0 {
            ProcessSelector { leader: None, mark: &self.mark_prefix }.kill_all();
        }
    }
}

fn failed_output(text: &str, how: &str) -> ToolOutput {
    ToolOutput::error(format!("{text}\n[{how}]").trim_start().to_owned())
}
