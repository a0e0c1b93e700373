//! Everything a command started.

use rustix::process::{Pid, Signal, kill_process_group};

use super::process_selector::ProcessSelector;

/// Everything a command started. It is ended when this is dropped, whatever way the command ended, unless it was
/// [closed](Self::close).
#[derive(Debug)]
pub(super) struct ProcessTree {
    leader: Option<Pid>,
    mark: String,
    is_disarmed: bool,
}

impl ProcessTree {
    /// What the process with this id started, and whatever carries this mark.
    pub(super) fn new(leader: Option<u32>, mark: String) -> Self {
        let leader = leader.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { leader, mark, is_disarmed: false }
    }

    /// Ends what is left in the command's own group.
    pub(super) fn kill_group(&self) {
        if let Some(leader) = self.leader {
            // An error means that the group is gone already.
            let _gone = kill_process_group(leader, Signal::KILL);
        }
    }

    /// Ends all of it, also what left the group, as far as it can be found. To look through every process takes a while,
    /// in which nobody else has to wait.
    pub(super) async fn kill_all(&self) {
        let (leader, mark) = (self.leader, self.mark.clone());
        let looked = tokio::task::spawn_blocking(move || ProcessSelector { leader, mark: &mark }.kill_all()).await;
        if let Err(error) = looked {
            tracing::warn!(%error, "what a command left was not looked for");
        }
        self.kill_group();
    }

    /// The same at once: where nobody can wait any more, it must be over before the rest goes on.
    fn kill_all_blocking(&self) {
        ProcessSelector { leader: self.leader, mark: &self.mark }.kill_all();
        self.kill_group();
    }

    /// The command is over and nothing of it is to be looked for any more: its id may soon be somebody else's.
    pub(super) fn disarm(mut self) {
        self.is_disarmed = true;
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if !self.is_disarmed {
            self.kill_all_blocking();
        }
    }
}
