//! The home and the disk it is on.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};
use rustix::io::Errno;

use super::report::CheckResult;
use crate::builder;

/// Below this much free space a warning is due.
const MIN_FREE_DISK_BYTES: u64 = 100_000_000;
/// Below this part of the whole, too.
const MIN_FREE_DISK_PERCENT: u64 = 5;
/// The permissions that let others in.
const HOME_SHARED_MODE_BITS: u32 = 0o077;

pub(super) fn check_home(home: &Path) -> CheckResult {
    let shown = home.display();
    let mode = match std::fs::metadata(home) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return CheckResult::ok("home", format!("{shown} is not there yet: the first message makes it"));
        }
        Err(error) => {
            let hint = "set CAPSTAN_HOME to a directory you can write to";
            return CheckResult::problem("home", format!("{shown} cannot be looked at: {error}"), hint);
        }
        Ok(found) if !found.is_dir() => {
            let hint = "move it away, or set CAPSTAN_HOME to a directory";
            return CheckResult::problem("home", format!("{shown} is not a directory"), hint);
        }
        Ok(found) => found.permissions().mode(),
    };
    if let Err(error) = access(home, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        let hint = "mend its permissions, or set CAPSTAN_HOME to a directory you can write to";
        return CheckResult::problem("home", format!("{shown} cannot be used: {error}"), hint);
    }
    let unwritable = find_unwritable(home);
    if !unwritable.is_empty() {
        let hint = "let this user write to what is named, or set CAPSTAN_HOME to a directory you can write to";
        let message = format!("nothing can be written: not all of {shown} is writable for this user");
        return CheckResult::problem("home", message, hint).with_details(unwritable);
    }
    if mode & HOME_SHARED_MODE_BITS != 0 {
        let message = format!("{shown} is open to others (mode {:03o}): conversations are there", mode & 0o777);
        return CheckResult::warning("home", message, &format!("chmod 700 {shown}"));
    }
    CheckResult::ok("home", shown.to_string())
}

/// What every command that writes must be able to write, is there, and is not for this user. The bits mean nothing to root.
fn find_unwritable(home: &Path) -> Vec<String> {
    let database = builder::database_path_in(home);
    let beside = ["db-wal", "db-shm"].map(|extension| database.with_extension(extension));
    let files = beside.into_iter().chain([database]).map(|path| (path, Access::READ_OK | Access::WRITE_OK));
    let folders = [builder::process_locks_dir(home), builder::tapes_dir_in(home)];
    let folders = folders.map(|path| (path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK));
    let refused = |(path, needed): (PathBuf, Access)| match access(&path, needed) {
        Ok(()) | Err(Errno::NOENT) => None,
        Err(error) => Some(format!("{}: {error}", path.display())),
    };
    files.chain(folders).filter_map(refused).collect()
}

/// Backups that were broken off, in the folders where they may be. They are of no use, and may be large.
pub(super) fn check_backups(unfinished: &[PathBuf]) -> Option<CheckResult> {
    let details = unfinished.iter().map(|path| path.display().to_string()).collect();
    let message = format!("backups that were broken off: {}", unfinished.len());
    let hint = "`capstan doctor --repair` removes them, and so does the next backup to the same folder";
    (!unfinished.is_empty()).then(|| CheckResult::warning("backups", message, hint).with_details(details))
}

/// The disk of the home, or of what it will be made in.
pub(super) fn check_disk(home: &Path) -> CheckResult {
    let there = home.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    match statvfs(there) {
        Ok(found) => {
            let size = found.f_frsize;
            check_free_space(found.f_bavail.saturating_mul(size), found.f_blocks.saturating_mul(size))
        }
        Err(error) => {
            let hint = "check that the file system of the home is mounted";
            CheckResult::warning("disk", format!("the free space of {} is not known: {error}", there.display()), hint)
        }
    }
}

fn check_free_space(free: u64, total: u64) -> CheckResult {
    let message = format!("{} free of {}", format_megabytes(free), format_megabytes(total));
    let data = serde_json::json!({ "free_bytes": free, "total_bytes": total });
    // A file system that says nothing about its size has no share to compare.
    let share_is_low = total > 0 && free.saturating_mul(100) / total < MIN_FREE_DISK_PERCENT;
    if free < MIN_FREE_DISK_BYTES || share_is_low {
        let hint = "make room: when the disk is full no message is accepted any more";
        return CheckResult::warning("disk", message, hint).data(data);
    }
    CheckResult::ok("disk", message).data(data)
}

fn format_megabytes(bytes: u64) -> String {
    format!("{} MB", bytes / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::super::report::CheckStatus;
    use super::check_free_space;

    #[test]
    fn a_disk_that_is_nearly_full_is_a_warning() {
        let status = |free, total| check_free_space(free, total).status;
        assert_eq!(status(50_000_000_000, 100_000_000_000), CheckStatus::Ok);
        assert_eq!(status(4_000_000_000, 100_000_000_000), CheckStatus::Warning, "under five percent");
        assert_eq!(status(99_000_000, 200_000_000), CheckStatus::Warning, "under a hundred megabytes");
        assert_eq!(status(500_000_000, 0), CheckStatus::Ok, "of unknown size");
    }
}
