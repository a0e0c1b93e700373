//! Processes of a command.

use rustix::process::{Pid, Signal, kill_process_group};

use super::process_selector::ProcessSelector;

/// All processes a command started. They are killed on drop, however the command ended, unless the tree was
/// [disarmed](Self::disarm).
#[derive(Debug)]
pub(super) struct CommandProcesses {
    leader: Option<Pid>,
    mark: String,
    is_disarmed: bool,
}

impl CommandProcesses {
    /// Creates the tree of the process with id `leader` and of all processes with this mark.
    pub(super) fn new(leader: Option<u32>, mark: String) -> Self {
        let leader = leader.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { leader, mark, is_disarmed: false }
    }

    /// Kills the rest of the command's own group.
    pub(super) fn kill_group(&self) {
        if let Some(leader) = self.leader {
            // An error means that the group is gone already.
            let _gone = kill_process_group(leader, Signal::KILL);
        }
    }

    /// Kills all processes, including those that left the group, as far as they can be found. Scanning all processes
    /// takes a while, so it runs on a blocking thread.
    pub(super) async fn kill_all(&self) {
        let (leader, mark) = (self.leader, self.mark.clone());
        let scan = tokio::task::spawn_blocking(move || ProcessSelector { leader, mark: &mark }.kill_all()).await;
        if let Err(error) = scan {
            tracing::warn!(%error, "could not search for processes left by a command");
        }
        self.kill_group();
    }

    /// Kills all processes synchronously, for `drop`, which cannot wait.
    fn kill_all_blocking(&self) {
        ProcessSelector { leader: self.leader, mark: &self.mark }.kill_all();
        self.kill_group();
    }

    /// Gives up ownership after the command has exited: its process id may be reused.
    pub(super) fn disarm(mut self) {
        self.is_disarmed = true;
    }
}

impl Drop for CommandProcesses {
    fn drop(&mut self) {
        if !self.is_disarmed {
            self.kill_all_blocking();
        }
    }
}
