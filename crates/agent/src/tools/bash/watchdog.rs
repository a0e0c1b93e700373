//! Watchdog process that kills commands if the host is killed and cannot do so itself.
//!
//! # Protocol
//!
//! The host writes `begin GROUP` and `end GROUP` lines to a pipe. When the pipe closes, because the host is gone, the
//! watchdog kills the groups that have not ended and all processes that carry the mark of this host's commands.

use std::collections::BTreeSet;
use std::io::{PipeWriter, Write as _};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::process::{Child, Command};

use super::environment;
use super::process_selector::COMMAND_MARK_VARIABLE;

/// Script of the watchdog. Besides the reported groups it kills marked processes and the groups they lead: the host may
/// have been killed before it reported its last command. It scans several times, since a process may have started
/// another one before it was killed.
const WATCHDOG_SCRIPT: &str = r#"trap '' HUP INT QUIT TERM; declare -A groups
while read -r verb group; do
    case $verb in begin) groups[$group]=1 ;; end) unset "groups[$group]" ;; esac
done
for group in "${!groups[@]}"; do kill -KILL -- "-$group"; done
for scan in 1 2 3; do
    for process in /proc/[0-9]*; do
        while IFS= read -r -d '' variable; do
            if [[ $variable == "$1"* ]]; then kill -KILL -- "-${process#/proc/}" "${process#/proc/}"; fi
        done < "$process/environ"
    done
done"#;

/// Watchdog of a host's commands: one child process that reads the other end of a pipe. It starts with the first
/// command; each command then costs two lines on the pipe.
#[derive(Debug)]
pub(super) struct CommandWatchdog {
    /// Prefix of the marks of this host's commands.
    mark_prefix: String,
    state: Mutex<WatchdogState>,
}

#[derive(Debug, Default)]
struct WatchdogState {
    process: Option<WatchdogProcess>,
    /// Groups of running commands.
    groups: BTreeSet<u32>,
}

#[derive(Debug)]
struct WatchdogProcess {
    pipe: PipeWriter,
    /// Killed on drop.
    #[cfg_attr(not(test), expect(dead_code, reason = "held only to be killed on drop"))]
    process: Child,
}

/// Registration of a command's group; dropping it ends the watch.
#[derive(Debug)]
pub(super) struct WatchGuard {
    watchdog: Arc<CommandWatchdog>,
    group: u32,
}

impl CommandWatchdog {
    pub(super) fn new(mark_prefix: &str) -> Self {
        Self { mark_prefix: mark_prefix.to_owned(), state: Mutex::default() }
    }

    /// Starts the watchdog if it is not running, before a command is spawned.
    pub(super) fn ensure_started(&self) {
        let mut state = self.lock();
        if state.process.is_none() {
            self.restart(&mut state);
        }
    }

    /// Watches the group of a started command.
    pub(super) fn watch_group(self: &Arc<Self>, group: u32) -> WatchGuard {
        let mut state = self.lock();
        state.groups.insert(group);
        let was_sent = state.process.as_mut().is_some_and(|watchdog| watchdog.send("begin", group).is_ok());
        if !was_sent {
            // The watchdog is gone.
            self.restart(&mut state);
        }
        WatchGuard { watchdog: Arc::clone(self), group }
    }

    fn restart(&self, state: &mut WatchdogState) {
        let started = self.spawn(&state.groups);
        let log_failure =
            |error: &std::io::Error| tracing::warn!(%error, "commands will outlive this process if it is killed");
        state.process = started.inspect_err(log_failure).ok();
    }

    fn lock(&self) -> MutexGuard<'_, WatchdogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a watchdog that knows these groups.
    fn spawn(&self, groups: &BTreeSet<u32>) -> std::io::Result<WatchdogProcess> {
        let (input, pipe) = std::io::pipe()?;
        // A watchdog that does not read must not block the host.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let mut command = Command::new("bash");
        command.arg("-c").arg(WATCHDOG_SCRIPT).arg("bash").arg(format!("{COMMAND_MARK_VARIABLE}={}", self.mark_prefix));
        command.env_clear().envs(environment::filter_variables(std::env::vars_os(), &[])).current_dir("/");
        command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
        // A separate process group keeps the watchdog alive when the host's group is killed.
        let process = command.process_group(0).kill_on_drop(true).spawn()?;
        let mut watchdog = WatchdogProcess { pipe, process };
        groups.iter().try_for_each(|group| watchdog.send("begin", *group))?;
        Ok(watchdog)
    }
}

impl WatchdogProcess {
    fn send(&mut self, verb: &str, group: u32) -> std::io::Result<()> {
        // A line this short is written atomically or not at all.
        self.pipe.write_all(format!("{verb} {group}\n").as_bytes())
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mut state = self.watchdog.lock();
        state.groups.remove(&self.group);
        let was_sent = state.process.as_mut().is_none_or(|watchdog| watchdog.send("end", self.group).is_ok());
        if !was_sent {
            // The watchdog would kill the next owner of this group id. The next command starts another one.
            state.process = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::sync::Arc;

    use tokio::process::{Child, Command};

    use super::{CommandWatchdog, WatchdogProcess};

    fn spawn_sleeper() -> Child {
        Command::new("sleep").arg("1000").process_group(0).kill_on_drop(true).spawn().unwrap()
    }

    /// Simulates a killed host: its end of the pipe closes and nothing else happens.
    async fn simulate_host_kill(watchdog: &CommandWatchdog) {
        let WatchdogProcess { pipe, mut process } = watchdog.lock().process.take().unwrap();
        drop(pipe);
        process.wait().await.unwrap();
    }

    #[tokio::test]
    async fn x05_watchdog_kills_running_groups_and_spares_ended_ones() {
        let watchdog = Arc::new(CommandWatchdog::new("an unused mark"));
        let (mut running, mut other) = (spawn_sleeper(), spawn_sleeper());
        let _running = watchdog.watch_group(running.id().unwrap());
        drop(watchdog.watch_group(other.id().unwrap()));
        simulate_host_kill(&watchdog).await;
        assert_eq!(running.wait().await.unwrap().signal(), Some(9));
        assert_eq!(other.try_wait().unwrap(), None, "its group id may have been reused");
    }

    #[tokio::test]
    async fn x05_killed_watchdog_is_replaced_with_all_groups() {
        let watchdog = Arc::new(CommandWatchdog::new("an unused mark"));
        let (mut first, mut second) = (spawn_sleeper(), spawn_sleeper());
        let _first = watchdog.watch_group(first.id().unwrap());
        let mut dead = watchdog.lock().process.take().unwrap();
        dead.process.kill().await.unwrap();
        watchdog.lock().process = Some(dead);
        let _second = watchdog.watch_group(second.id().unwrap());
        simulate_host_kill(&watchdog).await;
        assert_eq!(first.wait().await.unwrap().signal(), Some(9));
        assert_eq!(second.wait().await.unwrap().signal(), Some(9));
    }
}
