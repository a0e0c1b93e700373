//! System calls that no safe wrapper covers.
#![expect(unsafe_code, reason = "each block states why it is sound")]

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::Pid;
use rustix::thread::UnshareFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Side of a fork that the caller is on.
pub(crate) enum ForkSide {
    Parent(Pid),
    Child,
}

/// Forks this process, which must have one thread only.
pub(crate) fn fork_process() -> io::Result<ForkSide> {
    ensure_single_thread()?;
    // SAFETY: This process has one thread, as checked above, so no lock is held by a thread that the child lacks, and the
    // child may run any code.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(ForkSide::Child),
        pid => Pid::from_raw(pid).map(ForkSide::Parent).ok_or_else(|| io::Error::other("fork returned no process id")),
    }
}

/// Namespaces that [`unshare_namespace`] can create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewNamespace {
    /// User namespace of this process.
    User,
    /// PID namespace of the next children.
    Pid,
    /// Mount namespace of this process.
    Mount,
}

/// Creates a namespace for this process or its children.
pub(crate) fn unshare_namespace(namespace: NewNamespace) -> io::Result<()> {
    let flags = match namespace {
        NewNamespace::User => UnshareFlags::NEWUSER,
        NewNamespace::Pid => UnshareFlags::NEWPID,
        NewNamespace::Mount => UnshareFlags::NEWNS,
    };
    // SAFETY: The call is unsafe because of `UnshareFlags::FILES`, which is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// Closes all files that this process inherited, for the helper: the host may have left some open by mistake.
pub(crate) fn close_inherited_files() -> io::Result<()> {
    ensure_single_thread()?;
    // SAFETY: No value that owns or borrows one of these files is used afterwards. This process has one thread, as checked
    // above, and that thread is in the helper, which has opened no file yet and does not return to its caller.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Registers a file descriptor with the runtime, for reading.
pub(crate) fn watch_readable(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `OwnedFd` always returns the same descriptor, which stays open until the value is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }?)
}

fn ensure_single_thread() -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() == 1 {
        return Ok(());
    }
    Err(io::Error::other("the helper has several threads: `run_helper` must be called first in `main`"))
}
