//! The files of a folder as they were last seen.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::FolderLimits;
use super::index::IndexedDocument;
use super::skipped::SkippedFiles;

/// Never waited for, never followed when it is a link.
const KNOWLEDGE_OPEN_FLAGS: OFlags =
    OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::NOFOLLOW);
/// A file that was changed so shortly before it was read may have been changed once more without a trace.
const FILE_SETTLE_TIME: Duration = Duration::from_secs(2);

/// The files of a folder as they were last seen.
pub(super) struct FileCache {
    path: PathBuf,
    excluded: Vec<PathBuf>,
    limits: FolderLimits,
    files: BTreeMap<String, CachedFile>,
    skipped: SkippedFiles,
}

/// A file as it was read.
struct CachedFile {
    stamp: FileStamp,
    is_settled: bool,
    /// None where it is no text.
    document: Option<IndexedDocument>,
}

/// What tells whether a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    bytes: i64,
    /// When its content and when anything about it was changed: the second cannot be set back.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Stat> for FileStamp {
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_lossless,
        clippy::cast_possible_wrap,
        reason = "types differ by system"
    )]
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            bytes: stat.st_size as i64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

impl FileStamp {
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or_default());
        // A clock that was set back says nothing.
        now.checked_sub(changed).is_some_and(|age| age > FILE_SETTLE_TIME)
    }
}

impl FileCache {
    pub(super) fn new(path: PathBuf, closed: Vec<PathBuf>, limits: FolderLimits) -> Self {
        Self { path, excluded: closed, limits, files: BTreeMap::new(), skipped: SkippedFiles::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The texts there are, by name.
    pub(super) fn documents(&self) -> Vec<(&str, &IndexedDocument)> {
        self.files.iter().filter_map(|(name, seen)| Some((name.as_str(), seen.document.as_ref()?))).collect()
    }

    /// What is not looked at, in words.
    pub(super) fn skipped(&self) -> Option<String> {
        self.skipped.summary(&self.limits)
    }

    /// Looks at the folder and reads what has changed; gives what is left out, where that is news to worry about. Of
    /// a folder that cannot be read nothing is known any more.
    pub(super) fn refresh(&mut self) -> Result<Option<String>> {
        let before = std::mem::take(&mut self.files);
        let told = std::mem::take(&mut self.skipped);
        let root = self.path.canonicalize()?;
        let closed: Vec<PathBuf> = self.excluded.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        if closed.iter().any(|closed| root.starts_with(closed)) {
            return Err(Error::new(ErrorKind::PermissionDenied, "it belongs to Capstan itself"));
        }
        // Wherever it is reached by, it is the same folder.
        let closed =
            closed.iter().filter_map(|folder| rustix::fs::stat(folder).ok()).map(|stat| file_identity(&stat)).collect();
        let flags = KNOWLEDGE_OPEN_FLAGS.difference(OFlags::NOFOLLOW) | OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = rustix::fs::open(&root, flags, Mode::empty())?;
        let mut look = FolderScan {
            limits: self.limits,
            excluded: closed,
            previous: before,
            files: BTreeMap::new(),
            skipped: SkippedFiles::default(),
            name_count: 0,
            total_bytes: 0,
        };
        look.scan_folder(&folder, "", 0)?;
        self.files = look.files;
        self.skipped = look.skipped;
        Ok(self.skipped().filter(|_| self.skipped != told && self.skipped.should_warn()))
    }
}

/// One look at the files of a folder.
struct FolderScan {
    limits: FolderLimits,
    excluded: Vec<(u64, u64)>,
    previous: BTreeMap<String, CachedFile>,
    files: BTreeMap<String, CachedFile>,
    skipped: SkippedFiles,
    name_count: usize,
    total_bytes: u64,
}

impl FolderScan {
    /// Looks at a folder that is open: whatever becomes of its path meanwhile, nothing outside of it is reached.
    fn scan_folder(&mut self, folder: &OwnedFd, way: &str, depth: usize) -> Result<()> {
        let mut names = self.list_names(folder)?;
        names.sort_unstable();
        for name in names {
            let path = format!("{way}{}", name.to_string_lossy());
            let Ok(stat) = rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                // It has gone meanwhile, or nobody may look.
                continue;
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => self.skipped.links += 1,
                FileType::Directory if self.excluded.contains(&file_identity(&stat)) => {}
                FileType::Directory if depth >= self.limits.max_depth => self.skipped.is_truncated = true,
                FileType::Directory => {
                    let flags = KNOWLEDGE_OPEN_FLAGS | OFlags::RDONLY | OFlags::DIRECTORY;
                    let inner = rustix::fs::openat(folder, &name, flags, Mode::empty());
                    let looked = inner
                        .map_err(Error::from)
                        .and_then(|inner| self.scan_folder(&inner, &format!("{path}/"), depth + 1));
                    if looked.is_err() {
                        self.skipped.unreadable += 1;
                    }
                }
                FileType::RegularFile => self.scan_file(folder, &name, path, &stat),
                _ => self.skipped.not_text += 1,
            }
        }
        Ok(())
    }

    /// What stands in a folder, without what is hidden.
    fn list_names(&mut self, folder: &OwnedFd) -> Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            let name = entry?.file_name().to_owned();
            if name.to_bytes().starts_with(b".") {
                continue;
            }
            if self.name_count == self.limits.max_names {
                self.skipped.is_truncated = true;
                break;
            }
            self.name_count += 1;
            names.push(name);
        }
        Ok(names)
    }

    fn scan_file(&mut self, folder: &OwnedFd, name: &CString, path: String, stat: &Stat) {
        let stamp = FileStamp::from(stat);
        let bytes = u64::try_from(stamp.bytes).unwrap_or_default();
        if bytes > self.limits.max_file_bytes {
            self.skipped.too_large += 1;
            return;
        }
        if self.files.len() >= self.limits.max_files || self.total_bytes + bytes > self.limits.max_total_bytes {
            self.skipped.over_limit += 1;
            return;
        }
        let known = self.previous.remove(&path).filter(|seen| seen.is_settled && seen.stamp == stamp);
        let seen = known.map_or_else(|| self.read_file(folder, name, &path), Ok);
        match seen {
            Ok(seen) => {
                // It may have grown since it was looked at.
                self.total_bytes += u64::try_from(seen.stamp.bytes).unwrap_or_default();
                self.skipped.not_text += u64::from(seen.document.is_none());
                self.files.insert(path, seen);
            }
            Err(_) => self.skipped.unreadable += 1,
        }
    }

    fn read_file(&self, folder: &OwnedFd, name: &CString, path: &str) -> Result<CachedFile> {
        let file = rustix::fs::openat(folder, name, KNOWLEDGE_OPEN_FLAGS | OFlags::RDONLY, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::new(ErrorKind::InvalidInput, "it is no regular file"));
        }
        let stamp = FileStamp::from(&stat);
        let is_settled = stamp.is_settled();
        let mut bytes = Vec::new();
        // What is appended meanwhile is read the next time.
        let most = u64::try_from(stamp.bytes).unwrap_or_default().min(self.limits.max_file_bytes);
        File::from(file).take(most).read_to_end(&mut bytes)?;
        let document = decode_text(bytes).map(|text| IndexedDocument::new(path, &text));
        Ok(CachedFile { stamp, is_settled, document })
    }
}

/// A text, if it is one: in UTF-8, and without the sign that no text has.
fn decode_text(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[allow(clippy::unnecessary_cast, reason = "types differ by system")]
fn file_identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}
