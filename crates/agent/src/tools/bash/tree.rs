//! Everything a command started.

use rustix::process::{Pid, Signal, kill_process_group};

use super::processes::Belonging;

/// Everything a command started. It is ended when this is dropped, whatever way the command ended, unless it was
/// [closed](Self::close).
#[derive(Debug)]
pub(super) struct Tree {
    leader: Option<Pid>,
    mark: String,
    is_closed: bool,
}

impl Tree {
    /// What the process with this id started, and whatever carries this mark.
    pub(super) fn new(leader: Option<u32>, mark: String) -> Self {
        let leader = leader.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { leader, mark, is_closed: false }
    }

    /// Ends what is left in the command's own group.
    pub(super) fn end_group(&self) {
        if let Some(leader) = self.leader {
            // An error means that the group is gone already.
            let _gone = kill_process_group(leader, Signal::KILL);
        }
    }

    /// Ends all of it, also what left the group, as far as it can be found. To look through every process takes a while,
    /// in which nobody else has to wait.
    pub(super) async fn look_and_end(&self) {
        let (leader, mark) = (self.leader, self.mark.clone());
        let looked = tokio::task::spawn_blocking(move || Belonging { leader, mark: &mark }.end()).await;
        if let Err(error) = looked {
            tracing::warn!(%error, "what a command left was not looked for");
        }
        self.end_group();
    }

    /// The same at once: where nobody can wait any more, it must be over before the rest goes on.
    fn end(&self) {
        Belonging { leader: self.leader, mark: &self.mark }.end();
        self.end_group();
    }

    /// The command is over and nothing of it is to be looked for any more: its id may soon be somebody else's.
    pub(super) fn close(mut self) {
        self.is_closed = true;
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.is_closed {
            self.end();
        }
    }
}
