//! System calls that no safe wrapper covers.
#![expect(unsafe_code, reason = "each block states why it is sound")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

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

/// Rights over files, as landlock counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LandlockAccess(u64);

impl LandlockAccess {
    const EXECUTE: u64 = 1;
    const WRITE_FILE: u64 = 1 << 1;
    const READ_FILE: u64 = 1 << 2;
    const READ_DIR: u64 = 1 << 3;
    const MAKE_CHAR: u64 = 1 << 6;
    const MAKE_BLOCK: u64 = 1 << 11;
    const REFER: u64 = 1 << 13;
    const TRUNCATE: u64 = 1 << 14;
    /// Rights of the first version.
    const FIRST_VERSION: u64 = (1 << 13) - 1;
    const OF_FILES: u64 = Self::EXECUTE | Self::WRITE_FILE | Self::READ_FILE | Self::TRUNCATE;

    /// Returns all rights over content and directories that this version knows. Control of devices stays unrestricted.
    pub(crate) fn all(abi: u32) -> Self {
        let refer = if abi >= 2 { Self::REFER } else { 0 };
        let truncate = if abi >= 3 { Self::TRUNCATE } else { 0 };
        Self(Self::FIRST_VERSION | refer | truncate)
    }

    /// Returns the rights but those to create devices.
    pub(crate) fn without_devices(self) -> Self {
        Self(self.0 & !(Self::MAKE_CHAR | Self::MAKE_BLOCK))
    }

    /// Returns the rights to read and to execute.
    pub(crate) fn read_only(self) -> Self {
        Self(self.0 & (Self::EXECUTE | Self::READ_FILE | Self::READ_DIR))
    }

    /// Returns the rights over the content of files.
    pub(crate) fn of_file(self) -> Self {
        Self(self.0 & Self::OF_FILES)
    }

    /// Returns the rights over directories.
    pub(crate) fn of_folder(self) -> Self {
        Self(self.0 & !Self::OF_FILES)
    }
}

/// `struct landlock_ruleset_attr`. A kernel that knows fewer fields accepts the others as zero.
#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneathAttributes {
    allowed_access: u64,
    parent_fd: i32,
}

const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
const LANDLOCK_RULE_PATH_BENEATH: u32 = 1;
const LANDLOCK_SCOPE_SIGNAL: u64 = 1 << 1;

/// Returns the version of landlock. An error means that it is not available.
pub(crate) fn landlock_abi() -> io::Result<u32> {
    // SAFETY: With the version flag the kernel reads no attributes, and returns a number.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttributes>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    if abi < 1 { Err(io::Error::last_os_error()) } else { u32::try_from(abi).map_err(io::Error::other) }
}

/// Creates a ruleset that denies these rights but for its rules, and signals to processes outside of it.
pub(crate) fn create_landlock_ruleset(handled: LandlockAccess, has_signal_scope: bool) -> io::Result<OwnedFd> {
    let scoped = if has_signal_scope { LANDLOCK_SCOPE_SIGNAL } else { 0 };
    let attributes = RulesetAttributes { handled_access_fs: handled.0, handled_access_net: 0, scoped };
    // SAFETY: The kernel reads the attributes, whose size is given, and returns a new file descriptor.
    let file = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size_of::<RulesetAttributes>(), 0_u32)
    };
    let Ok(file @ 0..) = RawFd::try_from(file) else { return Err(io::Error::last_os_error()) };
    // SAFETY: The kernel has just returned this descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Allows access to a file, or to a directory with everything in it.
pub(crate) fn add_landlock_rule(
    ruleset: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    access: LandlockAccess,
) -> io::Result<()> {
    let attributes = PathBeneathAttributes { allowed_access: access.0, parent_fd: file.as_raw_fd() };
    // SAFETY: The kernel reads the attributes, which have the layout of the rule type, during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            LANDLOCK_RULE_PATH_BENEATH,
            &raw const attributes,
            0_u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restricts this process and its children by a ruleset.
pub(crate) fn restrict_by_landlock(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: The call takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
