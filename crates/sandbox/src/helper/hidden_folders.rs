//! Mounts that hide closed directories, in the mount namespace of a tree.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, StatVfsMountFlags, statvfs};
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind, mount_remount, move_mount, open_tree,
};

use crate::closed_folders::{FolderAccess, FolderRules};

/// Flags of the empty file systems that hide directories.
const HIDING_MOUNT_FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Hides the closed directories, and mounts the open ones within them again. The mount namespace must be that of the tree.
pub(super) fn hide_folders(rules: &FolderRules) -> Result<(), String> {
    for closed in rules.closed() {
        hide_folder(closed, rules).map_err(|error| format!("cannot mount over {}: {error}", closed.display()))?;
    }
    if rustix::process::geteuid().is_root() {
        protect_kernel_files().map_err(|error| format!("cannot protect /proc: {error}"))?;
    }
    Ok(())
}

fn hide_folder(closed: &Path, rules: &FolderRules) -> io::Result<()> {
    let mut open: Vec<(PathBuf, FolderAccess, OwnedFd)> = Vec::new();
    for (folder, access) in rules.open().filter(|(folder, _)| folder.starts_with(closed)) {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        open.push((folder.to_owned(), access, open_tree(CWD, folder, flags)?));
    }
    mount("tmpfs", closed, "tmpfs", HIDING_MOUNT_FLAGS, Some(c"size=1m,mode=0755"))?;
    for (folder, access, tree) in &open {
        std::fs::create_dir_all(folder)?;
        move_mount(tree, "", CWD, folder, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        if *access == FolderAccess::ReadOnly {
            remount_read_only(folder)?;
        }
    }
    mount_remount(closed, HIDING_MOUNT_FLAGS | MountFlags::RDONLY | MountFlags::BIND, c"")?;
    Ok(())
}

/// Makes a mount read-only and keeps its other flags, which may not be removed in a user namespace.
fn remount_read_only(folder: &Path) -> io::Result<()> {
    let present = statvfs(folder)?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let kept = kept.into_iter().filter(|(flag, _)| present.contains(*flag)).map(|(_, flag)| flag);
    mount_remount(folder, kept.collect::<MountFlags>() | MountFlags::RDONLY | MountFlags::BIND, c"")?;
    Ok(())
}

/// Closes the files of `/proc` through which root controls the machine.
fn protect_kernel_files() -> io::Result<()> {
    mount_bind("/proc/sys", "/proc/sys")?;
    remount_read_only(Path::new("/proc/sys"))?;
    if Path::new("/proc/sysrq-trigger").exists() {
        mount_bind("/dev/null", "/proc/sysrq-trigger")?;
    }
    Ok(())
}
