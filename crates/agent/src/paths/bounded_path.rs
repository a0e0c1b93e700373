//! Path within the bounds, opened so that it cannot be moved out of them in between.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// Flags of every open: not inherited by commands, never blocking, never a controlling terminal.
const FILE_OPEN_FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// Permissions of new files and folders, before the umask.
const NEW_FILE_MODE: u32 = 0o666;
/// Permissions of a temporary file until it has those of the file it replaces.
const PRIVATE_FILE_MODE: u32 = 0o600;
const NEW_DIR_MODE: u32 = 0o777;

/// Timeout and poll interval for the lock of a folder.
const DIR_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const DIR_LOCK_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Path within the bounds: a root, and a path below it in which symbolic links are resolved already and no longer
/// followed.
#[derive(Debug)]
pub(crate) struct BoundedPath {
    /// Path as given by the caller.
    requested: String,
    root: PathBuf,
    relative: PathBuf,
}

/// Outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Created,
    Overwrote,
}

impl BoundedPath {
    /// Creates the bounded form of a resolved path under a resolved root.
    pub(crate) fn new(requested: &str, root: &Path, resolved: &Path) -> Self {
        let relative = resolved.strip_prefix(root).unwrap_or(resolved).to_owned();
        Self { requested: requested.to_owned(), root: root.to_owned(), relative }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Absolute path with links resolved.
    pub(super) fn resolved(&self) -> PathBuf {
        self.root.join(&self.relative)
    }

    pub(crate) fn requested(&self) -> &str {
        &self.requested
    }

    /// Opens the file for reading. Only regular files are opened: others may never end, or act when opened.
    pub(crate) fn open(&self) -> Result<File> {
        let file = if self.relative.as_os_str().is_empty() {
            rustix::fs::open(&self.root, FILE_OPEN_FLAGS | OFlags::RDONLY, Mode::empty())?
        } else {
            open_beneath(&self.open_root()?, &self.relative, OFlags::RDONLY)?
        };
        check_regular(&rustix::fs::fstat(&file)?)?;
        Ok(File::from(file))
    }

    /// Locks the folder against other writers, in this process and others, until the lock is dropped: content read
    /// under the lock is the content that [`write_locked`](Self::write_locked) replaces.
    pub(crate) fn lock_dir(&self) -> Result<DirLock> {
        let folder = match self.relative.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => {
                open_beneath(&self.open_root()?, parent, OFlags::RDONLY | OFlags::DIRECTORY)?
            }
            _ => self.open_root()?,
        };
        DirLock::acquire(folder)
    }

    /// Writes the complete file and creates missing folders.
    pub(crate) fn write(&self, content: &[u8]) -> Result<WriteOutcome> {
        self.file_name()?;
        self.write_locked(&DirLock::acquire(self.create_parent_dirs()?)?, content)
    }

    fn file_name(&self) -> Result<&OsStr> {
        self.relative.file_name().ok_or_else(|| Error::new(ErrorKind::IsADirectory, "it is a directory"))
    }

    /// Writes the complete file through a temporary file and a rename, so that readers see either the old or the new
    /// content.
    pub(crate) fn write_locked(&self, DirLock(folder): &DirLock, content: &[u8]) -> Result<WriteOutcome> {
        let name = self.file_name()?;
        let existing = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(stat) = &existing {
            check_regular(stat)?;
        }
        let (temp_name, file) = create_temp_file(folder, existing.as_ref())?;
        let result = write_content(file, content, existing.as_ref())
            .and_then(|()| Ok(rustix::fs::renameat(folder, temp_name.as_str(), folder, name)?));
        if let Err(error) = result {
            // The temporary file may be gone; the first error is the one that matters.
            let _leftover = rustix::fs::unlinkat(folder, temp_name.as_str(), AtFlags::empty());
            return Err(error);
        }
        Ok(if existing.is_some() { WriteOutcome::Overwrote } else { WriteOutcome::Created })
    }

    fn open_root(&self) -> Result<OwnedFd> {
        Ok(rustix::fs::open(&self.root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Opens the folder of the file, creating missing folders.
    fn create_parent_dirs(&self) -> Result<OwnedFd> {
        let mut folder = self.open_root()?;
        for name in self.relative.parent().into_iter().flat_map(Path::iter) {
            match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(NEW_DIR_MODE)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            folder = open_beneath(&folder, Path::new(name), OFlags::DIRECTORY)?;
        }
        Ok(folder)
    }
}

/// Lock of a folder against other writers.
pub(crate) struct DirLock(OwnedFd);

impl DirLock {
    /// Waits for the current writer, which holds the lock for as long as it takes to write a file.
    fn acquire(folder: OwnedFd) -> Result<Self> {
        let started_at = Instant::now();
        loop {
            match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if started_at.elapsed() < DIR_LOCK_TIMEOUT => {
                    std::thread::sleep(DIR_LOCK_POLL_INTERVAL);
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::new(ErrorKind::TimedOut, "another process keeps its folder locked"));
                }
                Err(Errno::INTR) => {}
                // Some file systems have no locks; there, concurrent writers are not excluded.
                Ok(()) | Err(_) => return Ok(Self(folder)),
            }
        }
    }
}

/// Opens a path below a folder. Links were resolved before, so a link found now was put there since.
fn open_beneath(folder: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(folder, path, FILE_OPEN_FLAGS | flags, Mode::empty(), beneath) {
        Ok(file) => Ok(file),
        // The kernel or the container does not offer `openat2`: open component by component instead.
        Err(Errno::NOSYS | Errno::PERM) => open_by_components(folder, path, flags),
        Err(error) => Err(error.into()),
    }
}

fn open_by_components(folder: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let mut names: Vec<_> = path.iter().collect();
    let Some(last) = names.pop() else { return Err(Errno::INVAL.into()) };
    let mut folder = folder.try_clone()?;
    for name in names {
        folder =
            rustix::fs::openat(&folder, name, FILE_OPEN_FLAGS | OFlags::NOFOLLOW | OFlags::DIRECTORY, Mode::empty())?;
    }
    Ok(rustix::fs::openat(&folder, last, FILE_OPEN_FLAGS | OFlags::NOFOLLOW | flags, Mode::empty())?)
}

fn check_regular(stat: &Stat) -> Result<()> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Error::new(ErrorKind::IsADirectory, "it is a directory")),
        _ => Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Creates a file in the folder under an unused name; private if it is to replace an existing file, which may be.
fn create_temp_file(folder: &OwnedFd, existing: Option<&Stat>) -> Result<(String, File)> {
    let mode = Mode::from_raw_mode(existing.map_or(NEW_FILE_MODE, |_| PRIVATE_FILE_MODE));
    let flags = FILE_OPEN_FLAGS | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let mut number = std::process::id();
    loop {
        let name = format!(".capstan-{number}.new");
        match rustix::fs::openat(folder, name.as_str(), flags, mode) {
            Ok(file) => return Ok((name, File::from(file))),
            Err(Errno::EXIST) => number = number.wrapping_add(1),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes and syncs a file, which then gets the permissions of the file it replaces: writing would clear some of them.
fn write_content(mut file: File, content: &[u8], existing: Option<&Stat>) -> Result<()> {
    file.write_all(content)?;
    if let Some(existing) = existing {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(existing.st_mode & 0o7777))?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn x06_temporary_file_that_replaces_a_file_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let folder = OwnedFd::from(File::open(dir.path()).unwrap());
        std::fs::write(dir.path().join("private.env"), "KEY=1").unwrap();
        let existing = rustix::fs::statat(&folder, "private.env", AtFlags::empty()).unwrap();
        let (_, file) = create_temp_file(&folder, Some(&existing)).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
