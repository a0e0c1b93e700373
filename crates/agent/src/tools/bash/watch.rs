//! Ending commands when the host is killed and cannot do it itself.

use std::collections::BTreeSet;
use std::io::{PipeWriter, Write as _};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::process::{Child, Command};

use super::environment;
use super::processes::MARK;

/// What the watcher does: it hears which groups of commands begin and end, until nobody is left to tell it. Then it ends
/// those that have not ended, and whatever carries the mark of this host's commands, with the groups that such processes
/// lead: the host may have been killed before it told of the last one. It looks more than once, as what it ends may have
/// started something meanwhile.
const WATCHES: &str = r#"trap '' HUP INT QUIT TERM; declare -A groups
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
pub(super) struct Watch {
    /// How the marks of this host's commands begin.
    mark: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    watcher: Option<Watcher>,
    /// The groups of commands that run.
    groups: BTreeSet<u32>,
}

#[derive(Debug)]
struct Watcher {
    pipe: PipeWriter,
    /// It ends with this.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is kept, and not asked"))]
    process: Child,
}

/// A command that is watched, until this is dropped.
#[derive(Debug)]
pub(super) struct Watched {
    watch: Arc<Watch>,
    group: u32,
}

impl Watch {
    pub(super) fn new(mark: &str) -> Self {
        Self { mark: mark.to_owned(), state: Mutex::default() }
    }

    /// Sees to it that there is a watcher before there is something to watch.
    pub(super) fn prepare(&self) {
        let mut state = self.lock();
        if state.watcher.is_none() {
            self.renew(&mut state);
        }
    }

    /// Watches the group of a command that has begun.
    pub(super) fn begin(self: &Arc<Self>, group: u32) -> Watched {
        let mut state = self.lock();
        state.groups.insert(group);
        let is_told = state.watcher.as_mut().is_some_and(|watcher| watcher.tell("begin", group).is_ok());
        if !is_told {
            // Somebody ended the watcher.
            self.renew(&mut state);
        }
        Watched { watch: Arc::clone(self), group }
    }

    fn renew(&self, state: &mut State) {
        let started = self.start(&state.groups);
        let unwatched =
            |error: &std::io::Error| tracing::warn!(%error, "commands outlive this process if it is killed");
        state.watcher = started.inspect_err(unwatched).ok();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a watcher that knows these groups.
    fn start(&self, groups: &BTreeSet<u32>) -> std::io::Result<Watcher> {
        let (input, pipe) = std::io::pipe()?;
        // A watcher that does not read must not hold the host up.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let mut command = Command::new("bash");
        command.arg("-c").arg(WATCHES).arg("bash").arg(format!("{MARK}={}", self.mark));
        command.env_clear().envs(environment::clean(std::env::vars_os(), &[])).current_dir("/");
        command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
        // Apart, so that what ends the host's own group does not end it.
        let process = command.process_group(0).kill_on_drop(true).spawn()?;
        let mut watcher = Watcher { pipe, process };
        groups.iter().try_for_each(|group| watcher.tell("begin", *group))?;
        Ok(watcher)
    }
}

impl Watcher {
    fn tell(&mut self, what: &str, group: u32) -> std::io::Result<()> {
        // In one piece: a line that short is written whole or not at all.
        self.pipe.write_all(format!("{what} {group}\n").as_bytes())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut state = self.watch.lock();
        state.groups.remove(&self.group);
        let is_told = state.watcher.as_mut().is_none_or(|watcher| watcher.tell("end", self.group).is_ok());
        if !is_told {
            // It would end what has the group's number next. The next command starts another.
            state.watcher = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::sync::Arc;

    use tokio::process::{Child, Command};

    use super::{Watch, Watcher};

    fn sleeping() -> Child {
        Command::new("sleep").arg("1000").process_group(0).kill_on_drop(true).spawn().unwrap()
    }

    /// What happens when the host is killed: its end of the pipe is closed, and nothing else is done.
    async fn kill_host(watch: &Watch) {
        let Watcher { pipe, mut process } = watch.lock().watcher.take().unwrap();
        drop(pipe);
        process.wait().await.unwrap();
    }

    #[tokio::test]
    async fn x05_what_has_not_ended_is_ended_and_what_has_is_left_alone() {
        let watch = Arc::new(Watch::new("a mark that nobody has"));
        let (mut running, mut other) = (sleeping(), sleeping());
        let _running = watch.begin(running.id().unwrap());
        drop(watch.begin(other.id().unwrap()));
        kill_host(&watch).await;
        assert_eq!(running.wait().await.unwrap().signal(), Some(9));
        assert_eq!(other.try_wait().unwrap(), None, "its number may be somebody else's by now");
    }

    #[tokio::test]
    async fn x05_a_watcher_that_somebody_ended_is_replaced_by_one_that_knows_as_much() {
        let watch = Arc::new(Watch::new("a mark that nobody has"));
        let (mut first, mut second) = (sleeping(), sleeping());
        let _first = watch.begin(first.id().unwrap());
        let mut ended = watch.lock().watcher.take().unwrap();
        ended.process.kill().await.unwrap();
        watch.lock().watcher = Some(ended);
        let _second = watch.begin(second.id().unwrap());
        kill_host(&watch).await;
        assert_eq!(first.wait().await.unwrap().signal(), Some(9));
        assert_eq!(second.wait().await.unwrap().signal(), Some(9));
    }
}
