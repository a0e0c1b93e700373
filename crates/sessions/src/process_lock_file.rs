//! Lock file of a process, which shows other processes that it is alive.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Maximum number of attempts to create the file while other programs change its folder.
const MAX_CREATE_ATTEMPTS: u32 = 1000;

/// Lock file of this process.
///
/// Other programs may remove the file or its folder at any moment, also before the file has its final name, and other
/// processes may hold its lock for the instant of a probe. Every step that fails for such a reason is repeated.
#[derive(Debug)]
pub(crate) struct ProcessLockFile {
    path: PathBuf,
    /// Locked for as long as this process lives.
    lock: Mutex<File>,
}

impl ProcessLockFile {
    /// Creates and locks the file, and its folder if it is missing.
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let lock = retry_disturbed(|| {
            Self::create_folder(folder)?;
            create_locked(&path)
        })?;
        Ok(Self { lock: Mutex::new(lock), path })
    }

    /// Creates the missing folder of lock files, which only its owner may use, whatever the umask.
    pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
        retry_disturbed(|| DirBuilder::new().recursive(true).mode(0o700).create(folder))
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the file again if it was removed, or replaced by one that this process has not locked. A home that was
    /// moved or removed is not created again: another one may be put there.
    pub(crate) fn restore(&self) -> io::Result<()> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if is_same_file(&lock, &self.path)? {
            return Ok(());
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let home = folder.parent().unwrap_or(Path::new("."));
        let restored = retry_disturbed(|| {
            if !home.is_dir() {
                return Ok(None);
            }
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            create_locked(&self.path).map(Some)
        })?;
        if let Some(restored) = restored {
            tracing::warn!(path = %self.path.display(), "the lock file of this process was removed; created it again");
            *lock = restored;
        }
        Ok(())
    }
}

impl Drop for ProcessLockFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "cannot remove the lock file of this process");
        }
    }
}

/// Creates the file under a temporary name and locks it before it gets its final name, so that an unlocked file with a
/// final name belongs to a dead owner.
fn create_locked(path: &Path) -> io::Result<File> {
    let temporary_path = path.with_extension("new");
    let lock = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary_path)?;
    lock.try_lock()?;
    // For operators who look for a process that hangs.
    writeln!(&lock, "{}", std::process::id())?;
    std::fs::rename(&temporary_path, path)?;
    Ok(lock)
}

/// Repeats an action that other programs disturb: they remove what it needs, create what it creates, or probe the lock.
fn retry_disturbed<T>(mut action: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut attempt = 1;
    loop {
        let error = match action() {
            Err(error) if attempt < MAX_CREATE_ATTEMPTS => error,
            result => return result,
        };
        if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::WouldBlock) {
            return Err(error);
        }
        attempt += 1;
        std::thread::yield_now();
    }
}

/// Returns true if a path leads to this open file.
fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    match path.metadata() {
        Ok(found) => Ok(id(found) == id(file.metadata()?)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::ProcessLockFile;
    use crate::{LeaseOwner, ProcessLiveness};

    /// Opens owners in a folder of a home while another program disturbs them.
    fn assert_opens_while(disturb: impl Fn(&Path) + Sync) {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("owners");
        let stopped = AtomicBool::new(false);
        let failures: Vec<_> = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stopped.load(Ordering::Relaxed) {
                    disturb(&folder);
                }
            });
            let failures = (0..2000).filter_map(|_| LeaseOwner::open(folder.clone()).err()).collect();
            stopped.store(true, Ordering::Relaxed);
            failures
        });
        assert!(failures.is_empty(), "{} failures, {:?}", failures.len(), failures.first());
    }

    #[test]
    fn x04_an_owner_gets_its_lock_file_while_another_program_empties_the_folder() {
        assert_opens_while(|folder| {
            for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let _gone = std::fs::remove_file(file.path());
            }
        });
    }

    #[test]
    fn x04_an_owner_gets_its_lock_file_while_another_program_removes_the_folder() {
        assert_opens_while(|folder| {
            let _gone = std::fs::remove_dir_all(folder);
        });
    }

    #[test]
    fn x04_an_owner_gets_its_lock_file_while_another_process_probes_the_locks() {
        assert_opens_while(|folder| {
            let _changed = ProcessLiveness::open(folder).stale_lock_files();
        });
    }

    #[test]
    fn x04_a_lock_file_that_was_replaced_by_a_copy_is_created_again() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("owners");
        let path = folder.join("host-a.lock");
        let file = ProcessLockFile::create(path.clone()).unwrap();
        let processes = ProcessLiveness::open(&folder);
        // As a copy of the home does that is put back.
        std::fs::write(home.path().join("copy"), "").unwrap();
        std::fs::rename(home.path().join("copy"), &path).unwrap();
        assert_eq!(processes.is_alive("host-a"), Some(false));
        file.restore().unwrap();
        assert_eq!(processes.is_alive("host-a"), Some(true));
        std::fs::remove_dir_all(&folder).unwrap();
        file.restore().unwrap();
        assert_eq!(processes.is_alive("host-a"), Some(true));
    }

    #[test]
    fn x07_a_home_that_was_moved_is_not_created_again() {
        let parent = tempfile::tempdir().unwrap();
        let (home, moved) = (parent.path().join("home"), parent.path().join("moved"));
        let file = ProcessLockFile::create(home.join("owners").join("host-a.lock")).unwrap();
        std::fs::rename(&home, &moved).unwrap();
        file.restore().unwrap();
        assert!(!home.exists());
        std::fs::rename(&moved, &home).unwrap();
        file.restore().unwrap();
        assert_eq!(ProcessLiveness::open(home.join("owners")).is_alive("host-a"), Some(true));
    }
}
