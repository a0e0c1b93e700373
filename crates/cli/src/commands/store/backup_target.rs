//! Target of a backup: hidden files beside the final path, renamed to it when the backup is complete.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use capstan_protocol::ErrorCode;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::stale_backups::{self, BACKUP_NAME_MARKER, BACKUP_NAME_SUFFIX};
use crate::CommandError;
use crate::command_error::is_out_of_space;

/// Suffixes of the files that SQLite keeps beside a database in use.
const SQLITE_SIDECAR_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Maximum time to wait for another backup that is being published, which takes a few renames.
const TARGET_LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval of the lock.
const TARGET_LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A backup in progress. Dropping it removes unfinished files.
pub(super) struct BackupTarget {
    path: PathBuf,
    folder: PathBuf,
    /// Unfinished copy of the database.
    pub(super) new_file: PathBuf,
    /// Unfinished copies of tapes stored as files.
    pub(super) new_tapes: PathBuf,
    /// Replace an existing backup.
    overwrites: bool,
}

impl BackupTarget {
    /// Checks that a backup can be created at this path.
    pub(super) fn new(path: &Path, database: &Path, force: bool) -> Result<Self, CommandError> {
        let shown = path.display();
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            return Err(invalid_path_error(format!("{shown} is a directory")));
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder =
            folder.canonicalize().map_err(|error| invalid_path_error(format!("cannot create {shown}: {error}")))?;
        let path = folder.join(name);
        // Also through a link: replacing the store with its own copy would lose concurrent writes.
        let is_same = |other: &Path| matches!((path.canonicalize(), other.canonicalize()), (Ok(a), Ok(b)) if a == b);
        if is_same(database) || SQLITE_SIDECAR_SUFFIXES.iter().any(|end| is_same(&with_suffix(database, end))) {
            return Err(invalid_path_error(format!("{shown} is the store itself")));
        }
        let hidden = |end: &str| {
            let mut hidden = OsString::from(".");
            hidden.push(name);
            hidden.push(format!("{end}{BACKUP_NAME_MARKER}{}{BACKUP_NAME_SUFFIX}", std::process::id()));
            folder.join(hidden)
        };
        let target = Self { new_file: hidden(""), new_tapes: hidden(".tapes"), path, folder, overwrites: force };
        target.check_existing()?;
        let existing = target.all_paths().into_iter().find(|path| path.symlink_metadata().is_ok());
        match existing {
            Some(path) if !force => Err(already_exists_error(&path)),
            _ => {
                for stale in stale_backups::find_stale_backups(&target.folder, SystemTime::now()) {
                    remove_unfinished(&stale);
                }
                Ok(target)
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Final folder of tapes stored as files.
    pub(super) fn tapes_dir(&self) -> PathBuf {
        with_suffix(&self.path, ".tapes")
    }

    /// All paths of a backup, including sidecar files that SQLite would take for parts of it.
    fn all_paths(&self) -> Vec<PathBuf> {
        let sidecars = SQLITE_SIDECAR_SUFFIXES.iter().map(|end| with_suffix(&self.path, end));
        [self.path.clone(), self.tapes_dir()].into_iter().chain(sidecars).collect()
    }

    /// Rejects a device, a pipe or a socket at any path of the backup, because other programs may be using it. Links are
    /// followed.
    fn check_existing(&self) -> Result<(), CommandError> {
        let tapes = self.tapes_dir();
        for path in self.all_paths() {
            // A path without metadata does not exist, or fails when it is written.
            let Ok(metadata) = path.metadata() else { continue };
            if !(metadata.is_file() || metadata.is_dir() && path == tapes) {
                return Err(invalid_path_error(format!("{} is not a regular file", path.display())));
            }
        }
        Ok(())
    }

    /// Creates the folder for tapes, accessible to its owner only.
    pub(super) fn create_tapes_dir(&self) -> Result<&Path, CommandError> {
        DirBuilder::new().mode(0o700).create(&self.new_tapes).map_err(|error| self.write_error(&error))?;
        Ok(&self.new_tapes)
    }

    /// Renames the complete backup to its final path, durably.
    pub(super) fn publish(self) -> Result<(), CommandError> {
        let folder = File::open(&self.folder).map_err(|error| self.write_error(&error))?;
        if self.overwrites {
            lock_folder(&folder).map_err(|error| self.write_error(&error))?;
            // The files may have changed during the copy.
            self.check_existing()?;
            self.publish_over_existing().map_err(|error| self.write_error(&error))?;
        } else {
            self.publish_new()?;
        }
        folder.sync_all().map_err(|error| self.write_error(&error))
    }

    /// Publishes without replacing anything. If another backup was published at the same path meanwhile, that one stays.
    fn publish_new(&self) -> Result<(), CommandError> {
        let rename_error = |path: &Path, error: &io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => already_exists_error(path),
            _ => self.write_error(error),
        };
        let (tapes, has_tapes) = (self.tapes_dir(), self.new_tapes.is_dir());
        if has_tapes {
            rename_no_replace(&self.new_tapes, &tapes).map_err(|error| rename_error(&tapes, &error))?;
        }
        rename_no_replace(&self.new_file, &self.path).map_err(|error| {
            if has_tapes {
                remove_unfinished(&tapes);
            }
            rename_error(&self.path, &error)
        })
    }

    fn publish_over_existing(&self) -> io::Result<()> {
        remove_path(&self.tapes_dir())?;
        // SQLite would apply a log of the replaced file to the new one.
        for end in SQLITE_SIDECAR_SUFFIXES {
            remove_path(&with_suffix(&self.path, end))?;
        }
        if self.new_tapes.is_dir() {
            std::fs::rename(&self.new_tapes, self.tapes_dir())?;
        }
        std::fs::rename(&self.new_file, &self.path)
    }

    fn write_error(&self, error: &io::Error) -> CommandError {
        let code = if is_out_of_space(error) { ErrorCode::DiskFull } else { ErrorCode::StoreFailed };
        CommandError::new(code, format!("cannot write {}: {error}", self.path.display()))
    }
}

impl Drop for BackupTarget {
    fn drop(&mut self) {
        let sidecars = SQLITE_SIDECAR_SUFFIXES.iter().map(|end| with_suffix(&self.new_file, end));
        for unfinished in [self.new_file.clone(), self.new_tapes.clone()].into_iter().chain(sidecars) {
            remove_unfinished(&unfinished);
        }
    }
}

fn invalid_path_error(message: String) -> CommandError {
    let hint = "give the path of a new file in an existing directory";
    CommandError::new(ErrorCode::Usage, message).with_hint(hint)
}

fn already_exists_error(path: &Path) -> CommandError {
    CommandError::new(ErrorCode::BackupExists, format!("{} already exists", path.display()))
}

/// Locks the folder against other backups that replace files, until it is closed. The database of one backup must never be
/// next to the tapes of another.
fn lock_folder(folder: &File) -> io::Result<()> {
    let deadline = Instant::now() + TARGET_LOCK_TIMEOUT;
    loop {
        match folder.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(TARGET_LOCK_POLL_INTERVAL),
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
            // Some file systems do not support locks.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
        }
    }
}

/// Renames a file or folder atomically, and fails if the new name exists.
fn rename_no_replace(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems do not support the flag.
        Err(Errno::INVAL | Errno::NOSYS) if to.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(Errno::INVAL | Errno::NOSYS) if from.is_dir() => std::fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        moved => Ok(moved?),
    }
}

fn remove_unfinished(path: &Path) {
    if let Err(error) = remove_path(path) {
        tracing::warn!(path = %path.display(), %error, "could not remove an unfinished backup");
    }
}

fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    PathBuf::from(path)
}

/// Removes a file or folder if it exists.
pub(super) fn remove_path(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use capstan_protocol::ErrorCode;

    use super::BackupTarget;

    /// A complete backup that is not published yet.
    fn finished_backup(folder: &Path, force: bool) -> BackupTarget {
        let target = BackupTarget::new(&folder.join("b.db"), &folder.join("capstan.db"), force).unwrap();
        std::fs::write(&target.new_file, "mine").unwrap();
        std::fs::write(target.create_tapes_dir().unwrap().join("t.jsonl"), "mine").unwrap();
        target
    }

    fn read_content(path: &Path) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    #[test]
    fn published_backup_is_at_its_final_path_with_its_tapes() {
        let folder = tempfile::tempdir().unwrap();
        finished_backup(folder.path(), false).publish().unwrap();
        assert_eq!(read_content(&folder.path().join("b.db")).as_deref(), Some("mine"));
        assert_eq!(read_content(&folder.path().join("b.db.tapes/t.jsonl")).as_deref(), Some("mine"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary files remain");
    }

    #[test]
    fn second_backup_to_the_same_path_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let (file, tapes) = (folder.path().join("b.db"), folder.path().join("b.db.tapes"));
        let late = finished_backup(folder.path(), false);
        std::fs::write(&file, "theirs").unwrap();
        assert_eq!(late.publish().unwrap_err().code, ErrorCode::BackupExists);
        assert_eq!(read_content(&file).as_deref(), Some("theirs"));
        assert!(!tapes.exists(), "no tapes of another backup beside it");
        std::fs::remove_file(&file).unwrap();

        let late = finished_backup(folder.path(), false);
        std::fs::create_dir(&tapes).unwrap();
        assert_eq!(late.publish().unwrap_err().code, ErrorCode::BackupExists);
        assert!(!file.exists() && std::fs::read_dir(&tapes).unwrap().next().is_none());
    }

    #[test]
    fn concurrent_replacing_backups_leave_one_consistent_backup() {
        let folder = tempfile::tempdir().unwrap();
        let make = |round: usize, whose: &str| {
            let mut target =
                BackupTarget::new(&folder.path().join("b.db"), &folder.path().join("capstan.db"), true).unwrap();
            (target.new_file, target.new_tapes) = (folder.path().join(whose), folder.path().join(format!("{whose}.d")));
            std::fs::write(&target.new_file, format!("{whose} {round}")).unwrap();
            std::fs::write(target.create_tapes_dir().unwrap().join("t.jsonl"), format!("{whose} {round}")).unwrap();
            target
        };
        for round in 0..200 {
            let (one, other) = (make(round, "one"), make(round, "other"));
            std::thread::scope(|scope| {
                let publishing = scope.spawn(|| other.publish().unwrap());
                one.publish().unwrap();
                publishing.join().unwrap();
            });
            let file = read_content(&folder.path().join("b.db")).unwrap();
            assert_eq!(read_content(&folder.path().join("b.db.tapes/t.jsonl")), Some(file), "in round {round}");
        }
    }

    #[test]
    fn socket_created_during_the_copy_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let late = finished_backup(folder.path(), true);
        let _socket = UnixListener::bind(folder.path().join("b.db-wal")).unwrap();
        assert_eq!(late.publish().unwrap_err().code, "usage");
        let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["b.db-wal"]);
    }

    #[test]
    fn forced_backup_replaces_a_file_created_during_the_copy() {
        let folder = tempfile::tempdir().unwrap();
        let late = finished_backup(folder.path(), true);
        std::fs::write(folder.path().join("b.db"), "theirs").unwrap();
        late.publish().unwrap();
        assert_eq!(read_content(&folder.path().join("b.db")).as_deref(), Some("mine"));
    }
}
