//! Handle of a running process tree.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::Shutdown;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::channel::receive_message;
use crate::closed_folders::FolderClosure;
use crate::error::SandboxError;
use crate::helper_program::HelperProgram;
use crate::launch::{HelperReport, TreeExit, TreeIsolation};
use crate::sys;

/// Running command with everything it started. Dropping it ends all of them.
#[derive(Debug)]
pub struct ProcessTree {
    /// Standard input, if it is piped.
    pub stdin: Option<pipe::Sender>,
    /// Standard output, if it is piped.
    pub stdout: Option<pipe::Receiver>,
    /// Standard error, if it is piped.
    pub stderr: Option<pipe::Receiver>,
    helper: HelperProgram,
    isolation: TreeIsolation,
    closure: Option<FolderClosure>,
    main: OwnedFd,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
    ending: watch::Receiver<Option<TreeEnding>>,
}

/// Handles that the host holds of a started tree.
pub(crate) struct TreeHandles {
    /// Socket to guard and init process.
    pub(crate) control: AsyncFd<OwnedFd>,
    /// Guard.
    pub(crate) helper: Child,
    /// Pidfd of the init process.
    pub(crate) init: OwnedFd,
    /// Pidfd of the main process.
    pub(crate) main: OwnedFd,
    /// Mechanism that closes directories.
    pub(crate) closure: Option<FolderClosure>,
}

/// End of a tree.
#[derive(Debug, Clone, Copy)]
enum TreeEnding {
    Exited(TreeExit),
    /// The helper was killed, and the tree with it.
    HelperLost,
}

impl ProcessTree {
    /// Supervises a started tree in a task of its own, which reaps the helper.
    pub(crate) fn supervise(helper: HelperProgram, handles: TreeHandles, isolation: TreeIsolation) -> Self {
        let stop = CancellationToken::new();
        let (publisher, ending) = watch::channel(None);
        let TreeHandles { control, helper: guard, init, main, closure } = handles;
        let token = stop.clone();
        tokio::spawn(async move {
            let outcome = watch_tree(control, guard, init, &token).await;
            let outcome = outcome.inspect_err(|error| tracing::warn!(%error, "cannot watch a process tree"));
            // An error means that the handle was dropped.
            let _dropped = publisher.send(Some(outcome.unwrap_or(TreeEnding::HelperLost)));
        });
        let stop_on_drop = stop.clone().drop_guard();
        Self {
            stdin: None,
            stdout: None,
            stderr: None,
            helper,
            isolation,
            closure,
            main,
            stop,
            _stop_on_drop: stop_on_drop,
            ending,
        }
    }

    /// Returns the isolation of the tree.
    pub fn isolation(&self) -> TreeIsolation {
        self.isolation
    }

    /// Returns the mechanism that closes directories, if the command has closed directories.
    pub fn folder_closure(&self) -> Option<FolderClosure> {
        self.closure
    }

    /// Returns the process id of the main process, as the host sees it, unless it has ended. It is for messages only: the
    /// id may be reused as soon as the process has ended.
    pub fn id(&self) -> Option<u32> {
        let info = format!("/proc/self/fdinfo/{}", std::os::fd::AsRawFd::as_raw_fd(&self.main));
        let info = std::fs::read_to_string(info).ok()?;
        info.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
    }

    /// Sends a signal to the main process, as for an orderly stop. Does nothing if the process has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.main, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            sent => Ok(sent?),
        }
    }

    /// Waits until the main process has exited and no process of the tree is left. What the main process leaves running is
    /// killed.
    ///
    /// May be called again, also after a call was cancelled.
    pub async fn wait(&mut self) -> Result<TreeExit, SandboxError> {
        let ending = self.ending.wait_for(Option::is_some).await.map(|ending| *ending);
        match ending {
            Ok(Some(TreeEnding::Exited(exit))) => Ok(exit),
            Ok(_) | Err(_) => Err(SandboxError::HelperEnded { program: self.helper.path().to_owned() }),
        }
    }

    /// Begins to kill all processes, and returns at once.
    pub fn start_kill(&self) {
        self.stop.cancel();
    }

    /// Kills all processes, and returns when none is left. The exit is that of the main process if it had exited before.
    pub async fn kill(&mut self) -> Result<TreeExit, SandboxError> {
        self.start_kill();
        self.wait().await
    }
}

impl AsFd for ProcessTree {
    /// Returns the pidfd of the main process. It becomes readable when that process ends.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.main.as_fd()
    }
}

/// Watches a tree until no process of it is left; kills it when `stop` is cancelled.
async fn watch_tree(
    control: AsyncFd<OwnedFd>,
    mut guard: Child,
    init: OwnedFd,
    stop: &CancellationToken,
) -> io::Result<TreeEnding> {
    let mut exit = None;
    let mut is_stopping = false;
    loop {
        let report = control.async_io(Interest::READABLE, |control| receive_message(control));
        let report = tokio::select! {
            report = report => report?,
            () = stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                // The guard sees the end of the socket; its last reports can still be read.
                rustix::net::shutdown(&control, Shutdown::Write)?;
                continue;
            }
        };
        match report {
            Some((HelperReport::Exited(reported), _)) => exit = Some(reported),
            Some((HelperReport::Unkillable { count }, _)) => {
                tracing::warn!(count, "processes of another user outlive their process tree");
            }
            Some(_) => {}
            // Guard and init process have closed the socket.
            None => break,
        }
    }
    guard.wait().await?;
    // Becomes readable when all processes of its PID namespace have ended, also if the guard was killed.
    let _ended = sys::watch_readable(init)?.readable().await?;
    let killed = is_stopping.then_some(TreeExit::Killed);
    Ok(exit.or(killed).map_or(TreeEnding::HelperLost, TreeEnding::Exited))
}
