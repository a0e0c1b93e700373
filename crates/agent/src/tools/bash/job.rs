//! A command in the background.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_protocol::SessionId;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::output::{More, Said};
use super::shell::{End, Order, Shell, news};

/// How long a job that is ended may take to be gone.
const KILL_DEADLINE: Duration = Duration::from_secs(5);
/// How much of a command is shown in a list.
const SHOWN_CHARS: usize = 80;

/// A command in the background. It ends with this.
pub(super) struct Job {
    pub(super) id: String,
    pub(super) session: SessionId,
    /// The beginning of its command.
    command: String,
    said: Arc<Mutex<Said>>,
    end: watch::Receiver<Option<End>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Job {
    /// A job that sees a command through, for no longer than this.
    pub(super) fn new(
        id: String,
        session: SessionId,
        order: &Order,
        mut shell: Shell,
        limit: Option<Duration>,
    ) -> Self {
        let (tell, end) = watch::channel(None);
        let (said, stop) = (shell.said(), CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let ended = tokio::select! {
                () = stopped.cancelled() => End::Killed,
                ended = shell.ended(limit) => ended.unwrap_or(End::Signal(None)),
            };
            shell.finish(ended).await;
            tell.send_replace(Some(ended));
        });
        let command = order.secrets.first_chars(&order.command, SHOWN_CHARS).replace('\n', " ");
        Self { id, session, command, said, end, stop, task }
    }

    pub(super) fn is_running(&self) -> bool {
        self.end.borrow().is_none()
    }

    /// Waits for its end, for no longer than this.
    pub(super) async fn ended_within(&self, wait: Duration) {
        let mut end = self.end.clone();
        // What it came to is asked afterwards.
        let _waited = tokio::time::timeout(wait, end.wait_for(Option::is_some)).await;
    }

    /// Ends it with everything it started.
    pub(super) async fn kill(&self) {
        self.stop.cancel();
        self.ended_within(KILL_DEADLINE).await;
    }

    /// What it said since the last time, and how it stands.
    pub(super) fn news(&self) -> String {
        // First: what it says after this is said by one that runs.
        let end = *self.end.borrow();
        let text = news(&self.said, if end.is_some() { More::Never } else { More::MayCome });
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
    pub(super) fn line(&self) -> String {
        let status = self.end.borrow().map_or_else(|| "is running".to_owned(), |end| end.to_string());
        format!("{} {status}: {}", self.id, self.command)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The command goes with its task.
        self.task.abort();
    }
}
