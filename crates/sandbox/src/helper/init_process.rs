//! Init process: starts the main process, reaps orphans, and reports the exit of the main process.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, pidfd_open, wait};

use super::descendants::kill_descendants;
use super::guard::report_failure;
use super::hidden_folders::hide_folders;
use super::{HELPER_FAILURE_CODE, main_process, pid_namespace};
use crate::channel::send_message;
use crate::closed_folders::{FolderClosure, FolderRules};
use crate::launch::{
    HelperReport, LaunchContext as _, LaunchFailure, LaunchRequest, LaunchStep, TreeExit, TreeIsolation,
};
use crate::sys::{self, ForkSide};

/// Standard streams of the main process.
pub(super) struct StandardStreams {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// First process of a tree.
pub(super) struct InitProcess<'a> {
    /// Socket to the host.
    pub(super) control: &'a OwnedFd,
    /// Pipe that closes with the guard.
    pub(super) lifeline: PipeReader,
    pub(super) request: LaunchRequest,
    pub(super) streams: StandardStreams,
}

impl InitProcess<'_> {
    /// Runs the command, and returns when its main process has exited. The rest of the tree ends with this process in a PID
    /// namespace; otherwise the guard inherits and kills it.
    pub(super) fn run(self) -> io::Result<()> {
        let Self { control, lifeline, request, streams } = self;
        let isolation = request.isolation;
        let prepare = || {
            bind_to_guard(&lifeline, isolation)?;
            if let (TreeIsolation::PidNamespace, Some(processes)) = (isolation, request.limits.processes) {
                pid_namespace::limit_process_ids(processes)?;
            }
            let closure = request.closed_folders.as_ref().map(|rules| close_folders(rules, isolation)).transpose()?;
            let (main, main_handle) = launch(request, streams, closure)?;
            Ok((main, main_handle, closure))
        };
        let (main, main_handle, closure) = prepare().map_err(|failure| report_failure(control.as_fd(), failure))?;
        let is_guard_gone = Arc::new(AtomicBool::new(false));
        if isolation == TreeIsolation::Subreaper {
            // A thread, since this one waits for children. The main process exists by now: nothing is forked later.
            let is_guard_gone = Arc::clone(&is_guard_gone);
            std::thread::spawn(move || end_with_guard(lifeline, &is_guard_gone));
        }
        // An error means that the host is gone: the guard is about to end the tree.
        let _unsent = send_message(control, &HelperReport::Launched { closure }, &[main_handle.as_fd()]);
        let exit = reap_until_exit(main)?;
        if !is_guard_gone.load(Ordering::SeqCst) {
            // As above.
            let _unsent = send_message(control, &HelperReport::Exited(exit), &[]);
        }
        Ok(())
    }
}

/// Makes sure that this process does not outlive the guard.
fn bind_to_guard(lifeline: &PipeReader, isolation: TreeIsolation) -> Result<(), LaunchFailure> {
    match isolation {
        TreeIsolation::PidNamespace => {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
                .at(LaunchStep::Helper, "set the parent-death signal")?;
            // The signal is not sent for a guard that ended before this call.
            let mut watched = [PollFd::new(lifeline, PollFlags::IN)];
            let ended = poll(&mut watched, Some(&Timespec::default())).at(LaunchStep::Helper, "poll the guard")?;
            if ended > 0 {
                std::process::exit(HELPER_FAILURE_CODE);
            }
            pid_namespace::mount_proc()
        }
        TreeIsolation::Subreaper => rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .at(LaunchStep::Helper, "become a subreaper"),
    }
}

/// Hides closed directories if this process has a mount namespace, and chooses the mechanism that closes them.
fn close_folders(rules: &FolderRules, isolation: TreeIsolation) -> Result<FolderClosure, LaunchFailure> {
    let hidden = match isolation {
        TreeIsolation::PidNamespace => hide_folders(rules),
        TreeIsolation::Subreaper => Err("no mount namespace".to_owned()),
    };
    let landlock = sys::landlock_abi().map_err(|error| format!("no landlock: {error}"));
    rules
        .choose_closure(hidden, landlock)
        .map_err(|reason| LaunchFailure::new(LaunchStep::ClosedFolders, "close directories", &io::Error::other(reason)))
}

/// Waits for the end of the guard, then ends the tree and this process.
fn end_with_guard(mut lifeline: PipeReader, is_guard_gone: &AtomicBool) {
    // The guard writes nothing: any result is its end.
    let _ended = lifeline.read(&mut [0]);
    // Before the main process is killed: that is no exit of its own.
    is_guard_gone.store(true, Ordering::SeqCst);
    kill_descendants();
    std::process::exit(HELPER_FAILURE_CODE);
}

/// Starts the main process, and returns when it executes its program.
fn launch(
    request: LaunchRequest,
    streams: StandardStreams,
    closure: Option<FolderClosure>,
) -> Result<(Pid, OwnedFd), LaunchFailure> {
    let (mut failures, failure_writer) = io::pipe().at(LaunchStep::Helper, "create a pipe")?;
    let main = match sys::fork_process().at(LaunchStep::Helper, "fork")? {
        ForkSide::Child => main_process::execute(request, streams, closure, failure_writer),
        ForkSide::Parent(main) => main,
    };
    drop((failure_writer, streams));
    let handle = pidfd_open(main, PidfdFlags::empty()).at(LaunchStep::Helper, "open the main process")?;
    let mut failure = Vec::new();
    failures.read_to_end(&mut failure).at(LaunchStep::Helper, "start the main process")?;
    if failure.is_empty() {
        return Ok((main, handle));
    }
    let unreadable = |error: serde_json::Error| LaunchFailure::new(LaunchStep::Helper, "start", &error.into());
    Err(serde_json::from_slice(&failure).unwrap_or_else(unreadable))
}

/// Reaps every process that ends, until the main process is among them.
fn reap_until_exit(main: Pid) -> io::Result<TreeExit> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended == main => return Ok(tree_exit(status)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn tree_exit(status: WaitStatus) -> TreeExit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => TreeExit::Code(code),
        (None, Some(signal)) => TreeExit::Signal(signal),
        (None, None) => TreeExit::Code(HELPER_FAILURE_CODE),
    }
}
