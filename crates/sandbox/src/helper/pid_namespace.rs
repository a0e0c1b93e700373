//! PID namespace of a tree, with a `/proc` of its own.

use std::fs;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use crate::launch::{LaunchContext as _, LaunchFailure, LaunchStep};
use crate::limits::has_namespaced_pid_max;
use crate::sys::{NewNamespace, unshare_namespace};

/// Creates a PID namespace for the next child, within a user namespace where this process may not do so otherwise.
pub(super) fn create_namespaces() -> Result<(), LaunchFailure> {
    if unshare_namespace(NewNamespace::Pid).is_ok() {
        return Ok(());
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare_namespace(NewNamespace::User).at(LaunchStep::Namespace, "create a user namespace")?;
    // Without the right to change groups a process may map its own group.
    fs::write("/proc/self/setgroups", "deny").at(LaunchStep::Namespace, "write /proc/self/setgroups")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))
        .at(LaunchStep::Namespace, "write /proc/self/uid_map")?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
        .at(LaunchStep::Namespace, "write /proc/self/gid_map")?;
    unshare_namespace(NewNamespace::Pid).at(LaunchStep::Namespace, "create a PID namespace")
}

/// Gives the init process a mount namespace with a `/proc` that shows its own PID namespace: programs look themselves up
/// there by their process id.
pub(super) fn mount_proc() -> Result<(), LaunchFailure> {
    unshare_namespace(NewNamespace::Mount).at(LaunchStep::Namespace, "create a mount namespace")?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .at(LaunchStep::Namespace, "detach the mounts")?;
    mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)
        .at(LaunchStep::Namespace, "mount /proc")
}

/// Process ids that Linux keeps for the early processes of a namespace.
const RESERVED_PROCESS_IDS: u64 = 300;

/// Limits the number of processes of root in this PID namespace, where the kernel allows it.
pub(super) fn limit_process_ids(processes: u64) -> Result<(), LaunchFailure> {
    let release = rustix::system::uname();
    if !rustix::process::getuid().is_root() || !has_namespaced_pid_max(&release.release().to_string_lossy()) {
        return Ok(());
    }
    let limit = processes.saturating_add(RESERVED_PROCESS_IDS + 1);
    let path = "/proc/sys/kernel/pid_max";
    let present = fs::read_to_string(path).at(LaunchStep::Limits, "processes")?;
    if present.trim().parse().is_ok_and(|present: u64| present <= limit) {
        return Ok(());
    }
    fs::write(path, limit.to_string()).at(LaunchStep::Limits, "processes")
}
