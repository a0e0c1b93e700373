//! Guard: ends the tree when the host is gone or asks for it.

use std::fs::File;
use std::io::{self, PipeWriter, Seek as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, waitpid};

use super::descendants::kill_descendants;
use super::init_process::{InitProcess, StandardStreams};
use super::{HELPER_FAILURE_CODE, HELPER_NAME, pid_namespace};
use crate::channel::{receive_message, send_message};
use crate::launch::{
    HelperReport, LaunchContext as _, LaunchFailure, LaunchHeader, LaunchRequest, LaunchStep, TreeIsolation,
};
use crate::sys::{self, ForkSide};

/// Reports a failed launch to the host, which waits for it.
pub(super) fn report_failure(control: BorrowedFd<'_>, failure: LaunchFailure) -> io::Error {
    let error = failure.to_io_error();
    // An error means that the host is gone: there is no other place for a report.
    let _unsent = send_message(control, &HelperReport::Failed(failure), &[]);
    error
}

/// Runs the guard until no process of the tree is left.
pub(super) fn run_guard() -> io::Result<()> {
    sys::close_inherited_files()?;
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let (init, lifeline) = start_init(&control).map_err(|failure| report_failure(control.as_fd(), failure))?;
    let watched = watch_init(control.as_fd(), init);
    if watched.is_err() {
        // Without its pidfd: this process has not waited for it, so its id is not reused.
        let _ended = kill_process(init, Signal::KILL);
    }
    // Returns after the kernel has ended the PID namespace.
    rustix::io::retry_on_intr(|| waitpid(Some(init), WaitOptions::empty()))?;
    drop(lifeline);
    // Orphans of the init process, where no PID namespace has ended them.
    let count = kill_descendants();
    if count > 0 {
        // An error means that the host is gone.
        let _unsent = send_message(control, &HelperReport::Unkillable { count }, &[]);
    }
    watched
}

/// Starts the init process. The pipe that is returned closes with the guard.
fn start_init(control: &OwnedFd) -> Result<(Pid, PipeWriter), LaunchFailure> {
    let at_helper = |action| move |error: io::Error| LaunchFailure::new(LaunchStep::Helper, action, &error);
    let name = std::ffi::CString::new(HELPER_NAME).unwrap_or_default();
    rustix::thread::set_name(&name).at(LaunchStep::Helper, "set the name of the process")?;
    rustix::process::setsid().at(LaunchStep::Helper, "create a session")?;
    std::env::set_current_dir("/").map_err(at_helper("enter the root directory"))?;
    // Applies in both kinds of isolation: without a PID namespace, the guard inherits the orphans of the init process.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .at(LaunchStep::Helper, "become a subreaper")?;
    let (request, streams) = read_request(control).map_err(at_helper("read the request"))?;
    if request.isolation == TreeIsolation::PidNamespace {
        pid_namespace::create_namespaces()?;
    }
    let (lifeline_reader, lifeline) = io::pipe().map_err(at_helper("create a pipe"))?;
    match sys::fork_process().map_err(at_helper("fork"))? {
        ForkSide::Child => {
            drop(lifeline);
            let init = InitProcess { control, lifeline: lifeline_reader, request, streams };
            let code = init.run().map_or(HELPER_FAILURE_CODE, |()| 0);
            std::process::exit(code)
        }
        ForkSide::Parent(init) => Ok((init, lifeline)),
    }
}

/// Reads the request of the host and the standard streams of the command.
fn read_request(control: &OwnedFd) -> io::Result<(LaunchRequest, StandardStreams)> {
    let received = receive_message::<LaunchHeader>(control)?;
    let (LaunchHeader {}, files) = received.ok_or_else(|| io::Error::other("the host is gone"))?;
    let [request, stdin, stdout, stderr] =
        <[OwnedFd; 4]>::try_from(files).map_err(|_files| io::Error::other("the host sent an incomplete request"))?;
    let mut request = File::from(request);
    request.rewind()?;
    let request = serde_json::from_reader(io::BufReader::new(request))?;
    Ok((request, StandardStreams { stdin, stdout, stderr }))
}

/// Reports the init process to the host, waits until it has ended, and kills it when the host is gone or asks for it.
fn watch_init(control: BorrowedFd<'_>, init: Pid) -> io::Result<()> {
    let init_handle = pidfd_open(init, PidfdFlags::empty())?;
    send_message(control, &HelperReport::InitStarted, &[init_handle.as_fd()])?;
    let mut is_host_watched = true;
    loop {
        let mut watched = [PollFd::new(&init_handle, PollFlags::IN), PollFd::new(&control, PollFlags::IN)];
        let count = if is_host_watched { 2 } else { 1 };
        rustix::io::retry_on_intr(|| poll(watched.get_mut(..count).unwrap_or_default(), None))?;
        let [init_events, host_events] = watched.map(|one| one.revents());
        if !init_events.is_empty() {
            return Ok(());
        }
        // The host sends nothing after its request: an event is the end of the socket.
        if is_host_watched && !host_events.is_empty() {
            is_host_watched = false;
            // An error means that the init process has ended.
            let _ended = pidfd_send_signal(&init_handle, Signal::KILL);
        }
    }
}
