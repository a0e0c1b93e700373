//! Listing of the files of a folder, with ignore rules and limits applied.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};
use rustix::fs::{FileType, Mode, OFlags, Stat};

use crate::FolderLimits;
use crate::file_stamp::{FileIdentity, FileStamp, file_identity};
use crate::skipped_files::SkippedFiles;

/// Never blocks on a pipe or a terminal, and never follows a link.
const KNOWLEDGE_OPEN_FLAGS: OFlags =
    OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::NOFOLLOW);

/// Folder that is held open, so that files are opened within it even if its path is replaced meanwhile.
pub(crate) struct OpenFolder {
    path: PathBuf,
    descriptor: OwnedFd,
    excluded_identities: Vec<FileIdentity>,
}

/// Regular file found in a folder.
pub(crate) struct ListedFile {
    /// Path within the folder.
    pub(crate) path: PathBuf,
    pub(crate) stamp: FileStamp,
}

/// Regular files of a folder in the order of their paths.
#[derive(Default)]
pub(crate) struct FolderListing {
    pub(crate) files: Vec<ListedFile>,
    pub(crate) skipped: SkippedFiles,
}

impl FolderListing {
    /// Counts a file or folder that cannot be read, unless it is gone since it was listed.
    fn add_unreadable(&mut self, error: Option<ErrorKind>) {
        self.skipped.unreadable += u64::from(error != Some(ErrorKind::NotFound));
    }
}

impl OpenFolder {
    /// Opens a folder. Fails if the folder lies inside an excluded one. Excluded folders inside it are skipped.
    pub(crate) fn open(path: &Path, excluded: &[PathBuf]) -> Result<Self> {
        let path = path.canonicalize()?;
        let canonical_excluded: Vec<PathBuf> =
            excluded.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        if canonical_excluded.iter().any(|folder| path.starts_with(folder)) {
            return Err(Error::new(ErrorKind::PermissionDenied, "the folder is inside the home of Capstan"));
        }
        let stats = canonical_excluded.iter().filter_map(|folder| rustix::fs::stat(folder).ok());
        let excluded_identities = stats.map(|stat| file_identity(&stat)).collect();
        let flags = KNOWLEDGE_OPEN_FLAGS.difference(OFlags::NOFOLLOW) | OFlags::RDONLY | OFlags::DIRECTORY;
        let descriptor = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Self { path, descriptor, excluded_identities })
    }

    /// Lists the regular files, without hidden and ignored ones, down to `max_depth` folders and up to `max_names` names
    /// in total.
    pub(crate) fn list(&self, limits: &FolderLimits) -> Result<FolderListing> {
        let mut listing = FolderListing::default();
        for (count, entry) in self.walk(limits.max_depth).enumerate() {
            // `>`: the first entry is the folder itself.
            if count > limits.max_names {
                listing.skipped.is_truncated = true;
                break;
            }
            match entry {
                Ok(entry) => self.list_entry(&entry, limits, &mut listing),
                Err(error) if count == 0 => return Err(into_io_error(error)),
                Err(error) => listing.add_unreadable(error.io_error().map(Error::kind)),
            }
        }
        listing.files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(listing)
    }

    /// Walks in the order of the file system: sorting within the walk would hold all names of a folder in memory at once.
    ///
    /// Only ignore files inside the folder apply: those of its parents would make the result depend on files outside the
    /// knowledge base.
    fn walk(&self, max_depth: usize) -> ignore::Walk {
        let excluded = self.excluded_identities.clone();
        WalkBuilder::new(&self.path)
            .hidden(true)
            .parents(false)
            .git_global(false)
            .git_exclude(false)
            .require_git(false)
            .follow_links(false)
            // Files of the deepest folder are one level below it.
            .max_depth(Some(max_depth.saturating_add(1)))
            .filter_entry(move |entry| excluded.is_empty() || !is_excluded(entry, &excluded))
            .build()
    }

    fn list_entry(&self, entry: &DirEntry, limits: &FolderLimits, listing: &mut FolderListing) {
        let Some(kind) = entry.file_type() else { return };
        if kind.is_dir() {
            listing.skipped.is_truncated |= entry.depth() > limits.max_depth;
        } else if kind.is_symlink() {
            listing.skipped.links += 1;
        } else if kind.is_file() {
            let path = entry.path().strip_prefix(&self.path).unwrap_or_else(|_| entry.path());
            match rustix::fs::lstat(entry.path()) {
                Ok(stat) => listing.files.push(ListedFile { path: path.to_owned(), stamp: FileStamp::from(&stat) }),
                Err(error) => listing.add_unreadable(Some(error.kind())),
            }
        } else {
            listing.skipped.not_text += 1;
        }
    }

    /// Opens a regular file by its path within the folder. No component of the path may be a link, so that nothing
    /// outside of the folder is opened, even if part of the path is replaced meanwhile.
    pub(crate) fn open_file(&self, path: &Path) -> Result<(OwnedFd, Stat)> {
        let not_found = || Error::new(ErrorKind::NotFound, "the path leaves the folder");
        let mut names: Vec<&OsStr> = Vec::new();
        for component in path.components() {
            let Component::Normal(name) = component else { return Err(not_found()) };
            names.push(name);
        }
        let (file_name, folders) = names.split_last().ok_or_else(not_found)?;
        let mut parent = None;
        for name in folders {
            let flags = KNOWLEDGE_OPEN_FLAGS | OFlags::RDONLY | OFlags::DIRECTORY;
            let inner = rustix::fs::openat(parent.as_ref().unwrap_or(&self.descriptor), *name, flags, Mode::empty())?;
            parent = Some(inner);
        }
        let flags = KNOWLEDGE_OPEN_FLAGS | OFlags::RDONLY;
        let file = rustix::fs::openat(parent.as_ref().unwrap_or(&self.descriptor), *file_name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            Ok((file, stat))
        } else {
            Err(Error::new(ErrorKind::InvalidInput, "not a regular file"))
        }
    }
}

fn is_excluded(entry: &DirEntry, excluded: &[FileIdentity]) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir())
        && rustix::fs::lstat(entry.path()).is_ok_and(|stat| excluded.contains(&file_identity(&stat)))
}

fn into_io_error(error: ignore::Error) -> Error {
    error.into_io_error().unwrap_or_else(|| Error::other("the folder cannot be walked"))
}
