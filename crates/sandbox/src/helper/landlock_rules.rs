//! Landlock rules of a command with closed directories.

use std::fs::{self, FileType};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::closed_folders::{FolderAccess, FolderRules};
use crate::sys::{self, LandlockAccess};

/// First version of landlock that confines signals.
const SIGNAL_SCOPE_ABI: u32 = 6;
/// Devices that give access to the memory of the machine.
const MEMORY_DEVICES: [&str; 3] = ["mem", "kmem", "port"];

/// Access to a file, or to a directory with everything in it.
struct PathRule {
    path: PathBuf,
    access: LandlockAccess,
}

/// Restricts this process. `is_hidden` tells that mounts hide the closed directories already: the rules then keep the mounts
/// in place, and allow everything but devices with the content of the disk.
pub(super) fn restrict_files(rules: &FolderRules, is_hidden: bool) -> io::Result<()> {
    let abi = sys::landlock_abi()?;
    let handled = LandlockAccess::all(abi);
    let ruleset = sys::create_landlock_ruleset(handled, abi >= SIGNAL_SCOPE_ABI)?;
    for PathRule { path, access } in collect_rules(rules, is_hidden, handled) {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // A file that is gone or out of reach needs no rule.
        let Ok(file) = openat(CWD, &path, flags, Mode::empty()) else { continue };
        let is_folder =
            rustix::fs::fstat(&file).is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir());
        let access = if is_folder { access } else { access.of_file() };
        match sys::add_landlock_rule(ruleset.as_fd(), file.as_fd(), access) {
            // A file of a kernel-internal file system, to which landlock does not apply.
            Err(error) if error.raw_os_error() == Some(Errno::BADFD.raw_os_error()) => {}
            added => added?,
        }
    }
    sys::restrict_by_landlock(ruleset.as_fd())
}

fn collect_rules(rules: &FolderRules, is_hidden: bool, handled: LandlockAccess) -> Vec<PathRule> {
    let all = handled.without_devices();
    let read_only = all.read_only();
    let mut found = Vec::new();
    if is_hidden {
        // Directories can be listed, and entries created, anywhere; content is allowed by the rules that follow.
        found.push(PathRule { path: "/".into(), access: all.of_folder() });
    } else {
        found.extend(rules.open().map(|(folder, access)| {
            let access = if access == FolderAccess::ReadOnly { read_only } else { all };
            PathRule { path: folder.to_owned(), access }
        }));
    }
    let mut pending = list_folder(Path::new("/"));
    while let Some((path, kind)) = pending.pop() {
        let is_memory = || MEMORY_DEVICES.iter().any(|name| path == Path::new("/dev").join(name));
        if kind.is_symlink() || kind.is_block_device() || is_memory() || (!is_hidden && rules.is_closed(&path)) {
            continue;
        }
        if path == Path::new("/dev") || (!is_hidden && rules.has_closed_within(&path)) {
            pending.extend(list_folder(&path));
            continue;
        }
        let access = if path == Path::new("/sys") { read_only } else { all };
        found.push(PathRule { path, access });
    }
    found
}

/// Lists the entries of a directory; none of a directory that cannot be read.
fn list_folder(folder: &Path) -> Vec<(PathBuf, FileType)> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| Some((entry.path(), entry.file_type().ok()?))).collect()
}
