//! Checks of the home directory and its disk.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};
use rustix::io::Errno;

use super::report::CheckResult;
use crate::config::SECRETS_FILE;
use crate::home;

/// Free space below which the check warns.
const MIN_FREE_DISK_BYTES: u64 = 100_000_000;
/// Number of free inodes below which the check warns.
const MIN_FREE_INODES: u64 = 1000;
/// Share of free space below which the check warns.
const MIN_FREE_DISK_PERCENT: u64 = 5;

pub(super) fn check_home(home: &Path) -> CheckResult {
    let shown = home.display();
    let mode = match std::fs::metadata(home) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return CheckResult::ok("home", format!("{shown} does not exist yet: the first message creates it"));
        }
        Err(error) => {
            let hint = "set CAPSTAN_HOME to a directory you can write to";
            return CheckResult::problem("home", format!("cannot inspect {shown}: {error}"), hint);
        }
        Ok(found) if !found.is_dir() => {
            let hint = "move the file away, or set CAPSTAN_HOME to a directory";
            return CheckResult::problem("home", format!("{shown} is not a directory"), hint);
        }
        Ok(found) => found.permissions().mode(),
    };
    if let Err(error) = access(home, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        let hint = "fix its permissions, or set CAPSTAN_HOME to a directory you can write to";
        return CheckResult::problem("home", format!("{shown} cannot be used: {error}"), hint);
    }
    let unwritable = find_unwritable(home);
    if !unwritable.is_empty() {
        let hint = "make these paths writable for this user, or set CAPSTAN_HOME to a directory you can write to";
        let message = format!("{shown} is not writable for this user");
        return CheckResult::problem("home", message, hint).with_details(unwritable);
    }
    if mode & home::SHARED_MODE_BITS != 0 {
        let message = format!("{shown} contains conversations and is open to others (mode {:03o})", mode & 0o777);
        return CheckResult::warning("home", message, &format!("chmod 700 {shown}, or run `capstan doctor --repair`"));
    }
    // The home protects it here, but not where it is copied or moved to.
    let keys = home.join(SECRETS_FILE);
    if let Some(mode) = std::fs::metadata(&keys).ok().map(|found| found.permissions().mode())
        && mode & home::SHARED_MODE_BITS != 0
    {
        let keys = keys.display();
        let message = format!("{keys} holds keys and is open to others (mode {:03o})", mode & 0o777);
        return CheckResult::warning("home", message, &format!("chmod 600 {keys}, or run `capstan doctor --repair`"));
    }
    CheckResult::ok("home", shown.to_string())
}

/// Existing files and folders that commands must write and this user cannot. Root can, whatever the permission bits say.
fn find_unwritable(home: &Path) -> Vec<String> {
    let database = home::database_path(home);
    let sidecars = ["db-wal", "db-shm"].map(|extension| database.with_extension(extension));
    let files = sidecars.into_iter().chain([database]).map(|path| (path, Access::READ_OK | Access::WRITE_OK));
    let folders = [home::process_locks_dir(home), home::tapes_dir(home)];
    let folders = folders.map(|path| (path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK));
    let denied = |(path, needed): (PathBuf, Access)| match access(&path, needed) {
        Ok(()) | Err(Errno::NOENT) => None,
        Err(error) => Some(format!("{}: {error}", path.display())),
    };
    files.chain(folders).filter_map(denied).collect()
}

/// Warns of interrupted backups, which are of no use and may be large.
pub(super) fn check_backups(unfinished: &[PathBuf]) -> Option<CheckResult> {
    let details = unfinished.iter().map(|path| path.display().to_string()).collect();
    let message = format!("interrupted backups: {}", unfinished.len());
    let hint = "`capstan doctor --repair` removes them, as does the next backup to the same folder";
    (!unfinished.is_empty()).then(|| CheckResult::warning("backups", message, hint).with_details(details))
}

/// Checks the free space of the disk of the home, or of its nearest existing parent.
pub(super) fn check_disk(home: &Path) -> CheckResult {
    let folder = home.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    match statvfs(folder) {
        Ok(stats) => {
            let size = stats.f_frsize;
            check_free_inodes(stats.f_favail, stats.f_files).unwrap_or_else(|| {
                check_free_space(stats.f_bavail.saturating_mul(size), stats.f_blocks.saturating_mul(size))
            })
        }
        Err(error) => {
            let hint = "check that the file system of the home is mounted";
            CheckResult::warning("disk", format!("cannot get the free space of {}: {error}", folder.display()), hint)
        }
    }
}

/// Warns of a file system that can hold few more files. Some file systems have no fixed number and report zero.
fn check_free_inodes(free: u64, total: u64) -> Option<CheckResult> {
    let message = format!("{free} inodes free of {total}");
    let hint = "remove files: without inodes no file can be created, however much space is free";
    let data = serde_json::json!({ "free_inodes": free, "total_inodes": total });
    (total > 0 && free < MIN_FREE_INODES).then(|| CheckResult::warning("disk", message, hint).data(data))
}

fn check_free_space(free: u64, total: u64) -> CheckResult {
    let message = format!("{} free of {}", format_megabytes(free), format_megabytes(total));
    let data = serde_json::json!({ "free_bytes": free, "total_bytes": total });
    // A file system that does not report its size has no share to compare.
    let share_is_low = total > 0 && free.saturating_mul(100) / total < MIN_FREE_DISK_PERCENT;
    if free < MIN_FREE_DISK_BYTES || share_is_low {
        let hint = "free some space: a full disk rejects all messages";
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
    use super::{check_free_inodes, check_free_space};

    #[test]
    fn x07_file_system_with_few_free_inodes_is_a_warning() {
        let status = |free, total| check_free_inodes(free, total).map(|result| result.status);
        assert_eq!(status(0, 100_000), Some(CheckStatus::Warning));
        assert_eq!(status(999, 100_000), Some(CheckStatus::Warning));
        assert_eq!(status(50_000, 100_000), None);
        assert_eq!(status(0, 0), None, "no fixed number");
    }

    #[test]
    fn nearly_full_disk_is_a_warning() {
        let status = |free, total| check_free_space(free, total).status;
        assert_eq!(status(50_000_000_000, 100_000_000_000), CheckStatus::Ok);
        assert_eq!(status(4_000_000_000, 100_000_000_000), CheckStatus::Warning, "under five percent");
        assert_eq!(status(99_000_000, 200_000_000), CheckStatus::Warning, "under a hundred megabytes");
        assert_eq!(status(500_000_000, 0), CheckStatus::Ok, "unknown size");
    }
}
