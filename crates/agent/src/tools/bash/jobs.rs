//! The commands of a host.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hooks::contracts::ToolError;
use capstan_protocol::{SessionId, ToolOutput};

use super::job::Job;
use super::output::{IN_BACKGROUND, More, WAITED_FOR};
use super::processes::Belonging;
use super::shell::{End, Order, Shell, news};
use super::watch::Watch;

/// How many jobs of a session may run at a time.
const RUNNING_IN_SESSION: usize = 8;
/// How many jobs may run at a time.
const RUNNING: usize = 64;
/// How many jobs are remembered that have ended.
const REMEMBERED: usize = 64;

/// The commands of a host, those in the background by the session they belong to. When it is dropped, all of them end.
pub(crate) struct Jobs {
    /// How the marks of this host's commands begin.
    mark: String,
    /// The number of the last command.
    commands: AtomicU64,
    /// What the user adds to the environment of commands.
    added: Vec<String>,
    /// Ends them when this process is killed.
    watch: Arc<Watch>,
    background: Mutex<Vec<Arc<Job>>>,
}

impl Jobs {
    /// No commands yet.
    pub(crate) fn new(added: Vec<String>) -> Self {
        let mark = uuid::Uuid::now_v7().simple().to_string();
        let watch = Arc::new(Watch::new(&mark));
        Self { mark, commands: AtomicU64::new(0), added, watch, background: Mutex::default() }
    }

    fn start(&self, order: &Order, most: usize) -> Result<(u64, Shell), ToolError> {
        let number = self.commands.fetch_add(1, Ordering::Relaxed) + 1;
        // The dash keeps the marks of two commands from being the beginning of one another.
        Ok((number, Shell::start(order, format!("{}-{number}-", self.mark), &self.added, &self.watch, most)?))
    }

    /// Runs a command to its end, or until its time is up.
    pub(super) async fn wait_for(&self, order: Order, limit: Duration) -> Result<ToolOutput, ToolError> {
        let (_, mut shell) = self.start(&order, WAITED_FOR)?;
        let said = shell.said();
        let end = shell.ended(Some(limit)).await.map_err(|error| ToolError::new(error.to_string()))?;
        shell.finish(end).await;
        let mut text = news(&said, More::Never);
        drop(said);
        text.truncate(text.trim_end().len());
        Ok(match end {
            End::Well if text.is_empty() => ToolOutput::ok("(no output)"),
            End::Well => ToolOutput::ok(text),
            End::TimeUp(_) => failed(&text, &format!("{end}: give timeout_seconds, or run it with background=true")),
            End::Code(_) | End::Signal(_) | End::Killed => failed(&text, &end.to_string()),
        })
    }

    /// Begins a command in the background; gives the id of its job.
    pub(super) fn begin(
        &self,
        session: &SessionId,
        order: &Order,
        limit: Option<Duration>,
    ) -> Result<String, ToolError> {
        let mut jobs = self.lock();
        let running = jobs.iter().filter(|job| job.is_running());
        let in_session = running.clone().filter(|job| job.session == *session).count();
        if in_session >= RUNNING_IN_SESSION || running.count() >= RUNNING {
            return Err(ToolError::new("too many commands run in the background; end one with bash.kill"));
        }
        let (number, shell) = self.start(order, IN_BACKGROUND)?;
        let id = format!("job-{number}");
        jobs.push(Arc::new(Job::new(id.clone(), session.clone(), order, shell, limit)));
        let ended = jobs.iter().filter(|job| !job.is_running()).count();
        let mut to_forget = ended.saturating_sub(REMEMBERED);
        jobs.retain(|job| {
            let forget = to_forget > 0 && !job.is_running();
            to_forget -= usize::from(forget);
            !forget
        });
        Ok(id)
    }

    /// A job of a session. Those of others are nobody's business.
    pub(super) fn find(&self, session: &SessionId, id: &str) -> Result<Arc<Job>, ToolError> {
        let found = self.lock().iter().find(|job| job.session == *session && job.id == id).cloned();
        found.ok_or_else(|| ToolError::new(format!("there is no job {id} here\n{}", self.list(session))))
    }

    /// The jobs of a session, a line for each.
    pub(super) fn list(&self, session: &SessionId) -> String {
        let jobs = self.lock();
        let lines: Vec<String> = jobs.iter().filter(|job| job.session == *session).map(|job| job.line()).collect();
        if lines.is_empty() { "nothing was run in the background".to_owned() } else { lines.join("\n") }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Job>>> {
        self.background.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Jobs {
    /// Also what commands that have ended left behind outside of their groups.
    fn drop(&mut self) {
        if self.commands.load(Ordering::Relaxed) > 0 {
            Belonging { leader: None, mark: &self.mark }.end();
        }
    }
}

fn failed(text: &str, how: &str) -> ToolOutput {
    ToolOutput::error(format!("{text}\n[{how}]").trim_start().to_owned())
}
