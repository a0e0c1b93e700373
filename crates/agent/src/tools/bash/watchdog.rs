//! Ending commands when the host is killed and cannot do it itself.

use std::collections::BTreeSet;
use std::io::{PipeWriter, Write as _};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::process::{Child, Command};

use super::environment;
use super::process_selector::COMMAND_MARK_VARIABLE;

/// What the watcher does: it hears which groups of commands begin and end, until nobody is left to tell it. Then it ends
/// those that have not ended, and whatever carries the mark of this host's commands, with the groups that such processes
/// lead: the host may have been killed before it told of the last one. It looks more than once, as what it ends may have
/// started something meanwhile.
const WATCHDOG_SCRIPT: &str = r#"trap '' HUP INT QUIT TERM; declare -A groups
while read -r what group; do
    case $what in begin) groups[$group]=1 ;; end) unset "groups[$group]" ;; esac
done
for group in "${!groups[@]}"; do kill -KILL -- "-$group"; done
for look in 1 2 3; do
    for process in /proc/[0-9]*; do
        while IFS= read -r -d '' variable; do
            if [[ $variable == "$1"* ]]; then kill -KILL -- "-${process#/proc/}" "${process#/proc/}"; fi
        done < "$process/environ"
    done
done"#;

/// The watcher of a host's commands: one process beside it, which holds the other end of a pipe. It is started with the
/// first command, and costs those that follow a line on the pipe.
#[derive(Debug)]
pub(super) struct CommandWatchdog {
    /// How the marks of this host's commands begin.
    mark_prefix: String,
    state: Mutex<WatchdogState>,
}

#[derive(Debug, Default)]
struct WatchdogState {
    process: Option<WatchdogProcess>,
    /// The groups of commands that run.
    groups: BTreeSet<u32>,
}

#[derive(Debug)]
struct WatchdogProcess {
    pipe: PipeWriter,
    /// It ends with this.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is kept, and not asked"))]
    process: Child,
}

/// A command that is watched, until this is dropped.
#[derive(Debug)]
pub(super) struct WatchGuard {
    watchdog: Arc<CommandWatchdog>,
    group: u32,
}

impl CommandWatchdog {
    pub(super) fn new(mark: &str) -> Self {
        Self { mark_prefix: mark.to_owned(), state: Mutex::default() }
    }

    /// Sees to it that there is a watcher before there is something to watch.
    pub(super) fn ensure_started(&self) {
        let mut state = self.lock();
        if state.process.is_none() {
            self.restart(&mut state);
        }
    }

    /// Watches the group of a command that has begun.
    pub(super) fn watch_group(self: &Arc<Self>, group: u32) -> WatchGuard {
        let mut state = self.lock();
        state.groups.insert(group);
        let is_told = state.process.as_mut().is_some_and(|watcher| watcher.send("begin", group).is_ok());
        if !is_told {
            // Somebody ended the watcher.
            self.restart(&mut state);
        }
        WatchGuard { watchdog: Arc::clone(self), group }
    }

    fn restart(&self, state: &mut WatchdogState) {
        let started = self.spawn(&state.groups);
        let unwatched =
            |error: &std::io::Error| tracing::warn!(%error, "commands outlive this process if it is killed");
        state.process = started.inspect_err(unwatched).ok();
    }

    fn lock(&self) -> MutexGuard<'_, WatchdogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a watcher that knows these groups.
    fn spawn(&self, groups: &BTreeSet<u32>) -> std::io::Result<WatchdogProcess> {
        let (input, pipe) = std::io::pipe()?;
        // A watcher that does not read must not hold the host up.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let mut command = Command::new("bash");
        command.arg("-c").arg(WATCHDOG_SCRIPT).arg("bash").arg(format!("{COMMAND_MARK_VARIABLE}={}", self.mark_prefix));
        command.env_clear().envs(environment::filter_variables(std::env::vars_os(), &[])).current_dir("/");
        command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
        // Apart, so that what ends the host's own group does not end it.
        let process = command.process_group(0).kill_on_drop(true).spawn()?;
        let mut watcher = WatchdogProcess { pipe, process };
        groups.iter().try_for_each(|group| watcher.send("begin", *group))?;
        Ok(watcher)
    }
}

impl WatchdogProcess {
    fn send(&mut self, what: &str, group: u32) -> std::io::Result<()> {
        // In one piece: a line that short is written whole or not at all.
        self.pipe.write_all(format!("{what} {group}\n").as_bytes())
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mut state = self.watchdog.lock();
        state.groups.remove(&self.group);
        let is_told = state.process.as_mut().is_none_or(|watcher| watcher.send("end", self.group).is_ok());
        if !is_told {
            // It would end what has the group's number next. The next command starts another.
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

    /// What happens when the host is killed: its end of the pipe is closed, and nothing else is done.
    async fn simulate_host_kill(watch: &CommandWatchdog) {
        let WatchdogProcess { pipe, mut process } = watch.lock().process.take().unwrap();
        drop(pipe);
        process.wait().await.unwrap();
    }

    #[tokio::test]
    async fn x05_what_has_not_ended_is_ended_and_what_has_is_left_alone() {
        let watch = Arc::new(CommandWatchdog::new("a mark that nobody has"));
        let (mut running, mut other) = (spawn_sleeper(), spawn_sleeper());
        let _running = watch.watch_group(running.id().unwrap());
        drop(watch.watch_group(other.id().unwrap()));
        simulate_host_kill(&watch).await;
        assert_eq!(running.wait().await.unwrap().signal(), Some(9));
        assert_eq!(other.try_wait().unwrap(), None, "its number may be somebody else's by now");
    }

    #[tokio::test]
    async fn x05_a_watcher_that_somebody_ended_is_replaced_by_one_that_knows_as_much() {
        let watch = Arc::new(CommandWatchdog::new("a mark that nobody has"));
        let (mut first, mut second) = (spawn_sleeper(), spawn_sleeper());
        let _first = watch.watch_group(first.id().unwrap());
        let mut ended = watch.lock().process.take().unwrap();
        ended.process.kill().await.unwrap();
        watch.lock().process = Some(ended);
        let _second = watch.watch_group(second.id().unwrap());
        simulate_host_kill(&watch).await;
        assert_eq!(first.wait().await.unwrap().signal(), Some(9));
        assert_eq!(second.wait().await.unwrap().signal(), Some(9));
    }
}
