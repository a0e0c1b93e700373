//! A place within the bounds, opened so that nobody can move it out of them meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// What every file is opened with: not passed on to commands, never waited for, never a terminal of ours.
const FILE_OPEN_FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// The modes of files and folders, before the user's mask.
const NEW_FILE_MODE: u32 = 0o666;
const NEW_DIR_MODE: u32 = 0o777;

/// How long somebody else may write in a folder, and how often that is looked at.
const DIR_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const DIR_LOCK_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A place within the bounds: a folder that is open, and the way down from it, in which no link is followed any more.
#[derive(Debug)]
pub(super) struct BoundedPath {
    /// The path as it was asked for.
    requested: String,
    root: PathBuf,
    relative: PathBuf,
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    Created,
    Overwrote,
}

impl BoundedPath {
    /// The place of a resolved path under a resolved root.
    pub(super) fn new(asked: &str, root: &Path, resolved: &Path) -> Self {
        let way = resolved.strip_prefix(root).unwrap_or(resolved).to_owned();
        Self { requested: asked.to_owned(), root: root.to_owned(), relative: way }
    }

    pub(super) fn requested(&self) -> &str {
        &self.requested
    }

    /// The file, to be read. Only a regular one is opened: others may never end, or do something when they are opened.
    pub(super) fn open(&self) -> Result<File> {
        let file = if self.relative.as_os_str().is_empty() {
            rustix::fs::open(&self.root, FILE_OPEN_FLAGS | OFlags::RDONLY, Mode::empty())?
        } else {
            open_beneath(&self.root()?, &self.relative, OFlags::RDONLY)?
        };
        check_regular(&rustix::fs::fstat(&file)?)?;
        Ok(File::from(file))
    }

    /// Keeps everybody else from writing here, in this process and in others, until it is dropped: what is read
    /// meanwhile is what [`write_in`](Self::write_in) replaces.
    pub(super) fn lock_dir(&self) -> Result<DirLock> {
        let folder = match self.relative.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => {
                open_beneath(&self.root()?, parent, OFlags::RDONLY | OFlags::DIRECTORY)?
            }
            _ => self.root()?,
        };
        DirLock::acquire(folder)
    }

    /// Writes the whole file, and makes the folders that are missing.
    pub(super) fn write(&self, content: &[u8]) -> Result<WriteOutcome> {
        self.file_name()?;
        self.write_locked(&DirLock::acquire(self.create_parent_dirs()?)?, content)
    }

    fn file_name(&self) -> Result<&OsStr> {
        self.relative.file_name().ok_or_else(|| Error::new(ErrorKind::IsADirectory, "it is a folder"))
    }

    /// Writes the whole file into its folder: under another name first, so that whoever reads it sees the old or the new
    /// one.
    pub(super) fn write_locked(&self, DirLock(folder): &DirLock, content: &[u8]) -> Result<WriteOutcome> {
        let name = self.file_name()?;
        let before = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(stat) = &before {
            check_regular(stat)?;
        }
        let (draft, file) = create_temp_file(folder)?;
        let written = write_content(file, content, before.as_ref())
            .and_then(|()| Ok(rustix::fs::renameat(folder, draft.as_str(), folder, name)?));
        if let Err(error) = written {
            // It may be gone; what matters is the error before.
            let _left = rustix::fs::unlinkat(folder, draft.as_str(), AtFlags::empty());
            return Err(error);
        }
        Ok(if before.is_some() { WriteOutcome::Overwrote } else { WriteOutcome::Created })
    }

    fn root(&self) -> Result<OwnedFd> {
        Ok(rustix::fs::open(&self.root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// The folder of the file, made where it is missing.
    fn create_parent_dirs(&self) -> Result<OwnedFd> {
        let mut folder = self.root()?;
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

/// A folder that nobody else writes in.
pub(super) struct DirLock(OwnedFd);

impl DirLock {
    /// Waits for whoever writes there, which takes as long as writing a file does.
    fn acquire(folder: OwnedFd) -> Result<Self> {
        let begun = Instant::now();
        loop {
            match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if begun.elapsed() < DIR_LOCK_TIMEOUT => {
                    std::thread::sleep(DIR_LOCK_POLL_INTERVAL)
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::new(ErrorKind::TimedOut, "somebody else keeps its folder locked"));
                }
                Err(Errno::INTR) => {}
                // Not every file system can: there it is as it is with every other program.
                Ok(()) | Err(_) => return Ok(Self(folder)),
            }
        }
    }
}

/// Opens what lies beneath a folder. Links were resolved before: one that is there now was put there meanwhile.
fn open_beneath(folder: &OwnedFd, way: &Path, flags: OFlags) -> Result<OwnedFd> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(folder, way, FILE_OPEN_FLAGS | flags, Mode::empty(), beneath) {
        Ok(file) => Ok(file),
        // A kernel or a container that does not have it: the same by hand, one name after the other.
        Err(Errno::NOSYS | Errno::PERM) => open_by_components(folder, way, flags),
        Err(error) => Err(error.into()),
    }
}

fn open_by_components(folder: &OwnedFd, way: &Path, flags: OFlags) -> Result<OwnedFd> {
    let mut names: Vec<_> = way.iter().collect();
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
        FileType::Directory => Err(Error::new(ErrorKind::IsADirectory, "it is a folder")),
        _ => Err(Error::new(ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// A new file of a folder under a name that nobody has.
fn create_temp_file(folder: &OwnedFd) -> Result<(String, File)> {
    let flags = FILE_OPEN_FLAGS | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let mut number = std::process::id();
    loop {
        let name = format!(".capstan-{number}.new");
        match rustix::fs::openat(folder, name.as_str(), flags, Mode::from_raw_mode(NEW_FILE_MODE)) {
            Ok(file) => return Ok((name, File::from(file))),
            Err(Errno::EXIST) => number = number.wrapping_add(1),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes a file out, with the rights of the one it takes the place of.
fn write_content(mut file: File, content: &[u8], before: Option<&Stat>) -> Result<()> {
    file.write_all(content)?;
    if let Some(before) = before {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(before.st_mode & 0o7777))?;
    }
    file.sync_all()
}
