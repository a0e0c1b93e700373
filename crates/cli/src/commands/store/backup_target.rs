//! Where a backup goes: beside its place until it is whole, then at its place.

use capstan_protocol::ErrorCode;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::stale_backups::{self, BACKUP_NAME_MARKER, BACKUP_NAME_SUFFIX};
use crate::CommandError;
use crate::command_error::is_out_of_space;

/// What SQLite keeps beside a database that is in use.
const SQLITE_SIDECAR_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// How long another backup may take to be put in its place, which is a matter of names.
const TARGET_LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// How often is looked whether it is.
const TARGET_LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A backup that is being made. What is unfinished is removed when this is dropped.
pub(super) struct BackupTarget {
    path: PathBuf,
    folder: PathBuf,
    /// The copy of the database, while it is made.
    pub(super) new_file: PathBuf,
    /// The copies of tapes that are kept as files, while they are made.
    pub(super) new_tapes: PathBuf,
    /// Whether what is at its place is replaced.
    overwrites: bool,
}

impl BackupTarget {
    /// Checks that a backup can be made there.
    pub(super) fn new(path: &Path, database: &Path, force: bool) -> Result<Self, CommandError> {
        let shown = path.display();
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            return Err(invalid_path_error(format!("{shown} is a directory")));
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder =
            folder.canonicalize().map_err(|error| invalid_path_error(format!("{shown} cannot be made: {error}")))?;
        let path = folder.join(name);
        // Also through a link: replacing the store with its own copy would lose what is written meanwhile.
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
        let there = target.all_paths().into_iter().find(|place| place.symlink_metadata().is_ok());
        match there {
            Some(place) if !force => Err(already_exists_error(&place)),
            _ => {
                for left in stale_backups::find_stale_backups(&target.folder, SystemTime::now()) {
                    remove_unfinished(&left);
                }
                Ok(target)
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the copies of tapes go that are kept as files.
    pub(super) fn tapes_dir(&self) -> PathBuf {
        with_suffix(&self.path, ".tapes")
    }

    /// Everything that a backup of this path is, or that would be taken for a part of it.
    fn all_paths(&self) -> Vec<PathBuf> {
        let beside = SQLITE_SIDECAR_SUFFIXES.iter().map(|end| with_suffix(&self.path, end));
        [self.path.clone(), self.tapes_dir()].into_iter().chain(beside).collect()
    }

    /// Refuses what a backup is never: a device, a pipe or a socket belongs to somebody who goes on using it. A link is what
    /// it points to.
    fn check_existing(&self) -> Result<(), CommandError> {
        let tapes = self.tapes_dir();
        for place in self.all_paths() {
            // What cannot be looked at is not there, or says so when it is written to.
            let Ok(found) = place.metadata() else { continue };
            if !(found.is_file() || found.is_dir() && place == tapes) {
                return Err(invalid_path_error(format!("{} is no regular file", place.display())));
            }
        }
        Ok(())
    }

    /// Makes the folder for tapes, which only its owner can look into.
    pub(super) fn create_tapes_dir(&self) -> Result<&Path, CommandError> {
        DirBuilder::new().mode(0o700).create(&self.new_tapes).map_err(|error| self.write_error(&error))?;
        Ok(&self.new_tapes)
    }

    /// Puts what is whole in its place, and makes that last.
    pub(super) fn publish(self) -> Result<(), CommandError> {
        let folder = File::open(&self.folder).map_err(|error| self.write_error(&error))?;
        if self.overwrites {
            lock_folder(&folder).map_err(|error| self.write_error(&error))?;
            // A copy takes its time, and something may have come meanwhile.
            self.check_existing()?;
            self.publish_over_existing().map_err(|error| self.write_error(&error))?;
        } else {
            self.publish_new()?;
        }
        folder.sync_all().map_err(|error| self.write_error(&error))
    }

    /// Another backup may have come to the same place meanwhile: of the two, the first stays.
    fn publish_new(&self) -> Result<(), CommandError> {
        let refused = |place: &Path, error: &io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => already_exists_error(place),
            _ => self.write_error(error),
        };
        let (tapes, has_tapes) = (self.tapes_dir(), self.new_tapes.is_dir());
        if has_tapes {
            rename_no_replace(&self.new_tapes, &tapes).map_err(|error| refused(&tapes, &error))?;
        }
        rename_no_replace(&self.new_file, &self.path).map_err(|error| {
            if has_tapes {
                remove_unfinished(&tapes);
            }
            refused(&self.path, &error)
        })
    }

    fn publish_over_existing(&self) -> io::Result<()> {
        remove_path(&self.tapes_dir())?;
        // A log of the file that was there before would be taken for one of the new file.
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
        let beside = SQLITE_SIDECAR_SUFFIXES.iter().map(|end| with_suffix(&self.new_file, end));
        for unfinished in [self.new_file.clone(), self.new_tapes.clone()].into_iter().chain(beside) {
            remove_unfinished(&unfinished);
        }
    }
}

fn invalid_path_error(message: String) -> CommandError {
    let hint = "give the path of a file that is to be made, in a directory that is there";
    CommandError::new(ErrorCode::Usage, message).with_hint(hint)
}

fn already_exists_error(place: &Path) -> CommandError {
    CommandError::new(ErrorCode::BackupExists, format!("{} is there already", place.display()))
}

/// Keeps other backups from replacing something in this folder until it is closed: the file of one must not come to stand
/// beside the tapes of another.
fn lock_folder(folder: &File) -> io::Result<()> {
    let deadline = Instant::now() + TARGET_LOCK_TIMEOUT;
    loop {
        match folder.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(TARGET_LOCK_POLL_INTERVAL),
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
            // Not every file system can.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
        }
    }
}

/// Gives a file or folder another name that nothing has, in one step.
fn rename_no_replace(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can.
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
        tracing::warn!(path = %path.display(), %error, "an unfinished backup was not removed");
    }
}

fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    PathBuf::from(path)
}

/// Removes a file or a folder, if there is one.
pub(super) fn remove_path(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use capstan_protocol::ErrorCode;

    use super::BackupTarget;

    /// A backup of a folder that is whole, and not at its place yet.
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
    fn a_backup_that_is_whole_is_at_its_place_with_its_tapes() {
        let folder = tempfile::tempdir().unwrap();
        finished_backup(folder.path(), false).publish().unwrap();
        assert_eq!(read_content(&folder.path().join("b.db")).as_deref(), Some("mine"));
        assert_eq!(read_content(&folder.path().join("b.db.tapes/t.jsonl")).as_deref(), Some("mine"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "and nothing else is left");
    }

    #[test]
    fn of_two_backups_to_one_place_the_first_stays_and_the_other_is_refused() {
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
    fn of_two_that_replace_what_is_there_one_stays_as_a_whole() {
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
                let placing = scope.spawn(|| other.publish().unwrap());
                one.publish().unwrap();
                placing.join().unwrap();
            });
            let file = read_content(&folder.path().join("b.db")).unwrap();
            assert_eq!(read_content(&folder.path().join("b.db.tapes/t.jsonl")), Some(file), "in round {round}");
        }
    }

    #[test]
    fn what_is_no_file_is_not_replaced_even_if_it_came_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let late = finished_backup(folder.path(), true);
        let _socket = UnixListener::bind(folder.path().join("b.db-wal")).unwrap();
        assert_eq!(late.publish().unwrap_err().code, ErrorCode::Usage);
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["b.db-wal"]);
    }

    #[test]
    fn one_that_is_told_to_replaces_what_came_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let late = finished_backup(folder.path(), true);
        std::fs::write(folder.path().join("b.db"), "theirs").unwrap();
        late.publish().unwrap();
        assert_eq!(read_content(&folder.path().join("b.db")).as_deref(), Some("mine"));
    }
}
