//! Lists and opens the files of a knowledge folder, within ignore rules and limits, without leaving the folder.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};
use rustix::fs::{FileType, Mode, OFlags, Stat};

use crate::FolderLimits;
use crate::file_stamp::{FileIdentity, FileStamp, file_identity};
use crate::skipped_files::SkippedFiles;

/// Flags for opening files: do not block on a pipe, do not acquire a controlling terminal, do not follow a link.
const KNOWLEDGE_OPEN_FLAGS: OFlags =
    OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::NOFOLLOW);

/// Open folder of a knowledge base. Its files are opened relative to its descriptor, so that they come from this folder
/// even if another one takes over its path.
pub(crate) struct OpenFolder {
    path: PathBuf,
    descriptor: OwnedFd,
    excluded_identities: Vec<FileIdentity>,
}

/// Regular file found in a folder.
pub(crate) struct ListedFile {
    /// Path relative to the folder.
    pub(crate) path: PathBuf,
    pub(crate) stamp: FileStamp,
}

/// Regular files of a folder, sorted by path, and the number of skipped ones.
#[derive(Default)]
pub(crate) struct FolderListing {
    pub(crate) files: Vec<ListedFile>,
    pub(crate) skipped: SkippedFiles,
}

impl FolderListing {
    /// Counts an unreadable file or folder, unless it was removed during the listing.
    fn add_unreadable(&mut self, error: Option<ErrorKind>) {
        self.skipped.unreadable += u64::from(error != Some(ErrorKind::NotFound));
    }
}

impl OpenFolder {
    /// Opens a folder. Fails if it lies inside an excluded folder (the home of Capstan). Excluded folders inside it are
    /// not listed.
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

    /// Lists the regular files, except hidden and ignored ones. Stops after `max_names` names of files and folders, and
    /// does not enter folders nested deeper than `max_depth`; either makes the listing truncated.
    pub(crate) fn list(&self, limits: &FolderLimits) -> Result<FolderListing> {
        let mut listing = FolderListing::default();
        for (count, entry) in self.walk(limits.max_depth).enumerate() {
            // `>` and not `>=`: the first entry is the folder itself.
            if count > limits.max_names {
                listing.skipped.is_truncated = true;
                break;
            }
            match entry {
                Ok(entry) => self.add_entry(&entry, limits, &mut listing),
                Err(error) if count == 0 => return Err(into_io_error(error)),
                Err(error) => listing.add_unreadable(error.io_error().map(Error::kind)),
            }
        }
        listing.files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(listing)
    }

    /// Walks the folder in the order of the file system: a sorted walk would hold all names of a subfolder in memory.
    ///
    /// Only ignore files inside the folder apply, so that the listing does not depend on files outside the knowledge base.
    fn walk(&self, max_depth: usize) -> ignore::Walk {
        let excluded = self.excluded_identities.clone();
        WalkBuilder::new(&self.path)
            .hidden(true)
            .parents(false)
            .git_global(false)
            .git_exclude(false)
            .require_git(false)
            .follow_links(false)
            // One more level: the files in the deepest folder.
            .max_depth(Some(max_depth.saturating_add(1)))
            .filter_entry(move |entry| excluded.is_empty() || !is_excluded(entry, &excluded))
            .build()
    }

    fn add_entry(&self, entry: &DirEntry, limits: &FolderLimits, listing: &mut FolderListing) {
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

    /// Opens a regular file by its path relative to the folder. Fails if a component of the path is a link, so that no file
    /// outside the folder is opened, even if part of the path was replaced after the listing.
    pub(crate) fn open_file(&self, path: &Path) -> Result<(OwnedFd, Stat)> {
        let outside_folder = || Error::new(ErrorKind::NotFound, "the path leaves the folder");
        let mut names: Vec<&OsStr> = Vec::new();
        for component in path.components() {
            let Component::Normal(name) = component else { return Err(outside_folder()) };
            names.push(name);
        }
        let (file_name, folders) = names.split_last().ok_or_else(outside_folder)?;
        let mut parent: Option<OwnedFd> = None;
        for name in folders {
            let flags = KNOWLEDGE_OPEN_FLAGS | OFlags::RDONLY | OFlags::DIRECTORY;
            let folder = rustix::fs::openat(parent.as_ref().unwrap_or(&self.descriptor), *name, flags, Mode::empty())?;
            parent = Some(folder);
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
