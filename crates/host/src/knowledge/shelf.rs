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
use super::index::Document;
use super::left_out::LeftOut;

/// Never waited for, never followed when it is a link.
const OPEN: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::NOFOLLOW);
/// A file that was changed so shortly before it was read may have been changed once more without a trace.
const UNSETTLED: Duration = Duration::from_secs(2);

/// The files of a folder as they were last seen.
pub(super) struct Shelf {
    path: PathBuf,
    closed: Vec<PathBuf>,
    limits: FolderLimits,
    files: BTreeMap<String, Seen>,
    left_out: LeftOut,
}

/// A file as it was read.
struct Seen {
    stamp: Stamp,
    is_settled: bool,
    /// None where it is no text.
    document: Option<Document>,
}

/// What tells whether a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: i64,
    /// When its content and when anything about it was changed: the second cannot be set back.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Stat> for Stamp {
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

impl Stamp {
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or_default());
        // A clock that was set back says nothing.
        now.checked_sub(changed).is_some_and(|age| age > UNSETTLED)
    }
}

impl Shelf {
    pub(super) fn new(path: PathBuf, closed: Vec<PathBuf>, limits: FolderLimits) -> Self {
        Self { path, closed, limits, files: BTreeMap::new(), left_out: LeftOut::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The texts there are, by name.
    pub(super) fn documents(&self) -> Vec<(&str, &Document)> {
        self.files.iter().filter_map(|(name, seen)| Some((name.as_str(), seen.document.as_ref()?))).collect()
    }

    /// What is not looked at, in words.
    pub(super) fn left_out(&self) -> Option<String> {
        self.left_out.words(&self.limits)
    }

    /// Looks at the folder and reads what has changed; gives what is left out, where that is news to worry about. Of
    /// a folder that cannot be read nothing is known any more.
    pub(super) fn refresh(&mut self) -> Result<Option<String>> {
        let before = std::mem::take(&mut self.files);
        let told = std::mem::take(&mut self.left_out);
        let root = self.path.canonicalize()?;
        let closed: Vec<PathBuf> = self.closed.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        if closed.iter().any(|closed| root.starts_with(closed)) {
            return Err(Error::new(ErrorKind::PermissionDenied, "it belongs to Capstan itself"));
        }
        // Wherever it is reached by, it is the same folder.
        let closed =
            closed.iter().filter_map(|folder| rustix::fs::stat(folder).ok()).map(|stat| place(&stat)).collect();
        let flags = OPEN.difference(OFlags::NOFOLLOW) | OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = rustix::fs::open(&root, flags, Mode::empty())?;
        let mut look = Look {
            limits: self.limits,
            closed,
            before,
            files: BTreeMap::new(),
            left_out: LeftOut::default(),
            names: 0,
            bytes: 0,
        };
        look.folder(&folder, "", 0)?;
        self.files = look.files;
        self.left_out = look.left_out;
        Ok(self.left_out().filter(|_| self.left_out != told && self.left_out.is_trouble()))
    }
}

/// One look at the files of a folder.
struct Look {
    limits: FolderLimits,
    closed: Vec<(u64, u64)>,
    before: BTreeMap<String, Seen>,
    files: BTreeMap<String, Seen>,
    left_out: LeftOut,
    names: usize,
    bytes: u64,
}

impl Look {
    /// Looks at a folder that is open: whatever becomes of its path meanwhile, nothing outside of it is reached.
    fn folder(&mut self, folder: &OwnedFd, way: &str, depth: usize) -> Result<()> {
        let mut names = self.names_in(folder)?;
        names.sort_unstable();
        for name in names {
            let path = format!("{way}{}", name.to_string_lossy());
            let Ok(stat) = rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                // It has gone meanwhile, or nobody may look.
                continue;
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => self.left_out.links += 1,
                FileType::Directory if self.closed.contains(&place(&stat)) => {}
                FileType::Directory if depth >= self.limits.depth => self.left_out.has_more = true,
                FileType::Directory => {
                    let flags = OPEN | OFlags::RDONLY | OFlags::DIRECTORY;
                    let inner = rustix::fs::openat(folder, &name, flags, Mode::empty());
                    let looked = inner
                        .map_err(Error::from)
                        .and_then(|inner| self.folder(&inner, &format!("{path}/"), depth + 1));
                    if looked.is_err() {
                        self.left_out.unreadable += 1;
                    }
                }
                FileType::RegularFile => self.file(folder, &name, path, &stat),
                _ => self.left_out.not_text += 1,
            }
        }
        Ok(())
    }

    /// What stands in a folder, without what is hidden.
    fn names_in(&mut self, folder: &OwnedFd) -> Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            let name = entry?.file_name().to_owned();
            if name.to_bytes().starts_with(b".") {
                continue;
            }
            if self.names == self.limits.names {
                self.left_out.has_more = true;
                break;
            }
            self.names += 1;
            names.push(name);
        }
        Ok(names)
    }

    fn file(&mut self, folder: &OwnedFd, name: &CString, path: String, stat: &Stat) {
        let stamp = Stamp::from(stat);
        let bytes = u64::try_from(stamp.bytes).unwrap_or_default();
        if bytes > self.limits.file_bytes {
            self.left_out.too_large += 1;
            return;
        }
        if self.files.len() >= self.limits.files || self.bytes + bytes > self.limits.total_bytes {
            self.left_out.beyond += 1;
            return;
        }
        let known = self.before.remove(&path).filter(|seen| seen.is_settled && seen.stamp == stamp);
        let seen = known.map_or_else(|| self.read(folder, name, &path), Ok);
        match seen {
            Ok(seen) => {
                // It may have grown since it was looked at.
                self.bytes += u64::try_from(seen.stamp.bytes).unwrap_or_default();
                self.left_out.not_text += u64::from(seen.document.is_none());
                self.files.insert(path, seen);
            }
            Err(_) => self.left_out.unreadable += 1,
        }
    }

    fn read(&self, folder: &OwnedFd, name: &CString, path: &str) -> Result<Seen> {
        let file = rustix::fs::openat(folder, name, OPEN | OFlags::RDONLY, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::new(ErrorKind::InvalidInput, "it is no regular file"));
        }
        let stamp = Stamp::from(&stat);
        let is_settled = stamp.is_settled();
        let mut bytes = Vec::new();
        // What is appended meanwhile is read the next time.
        let most = u64::try_from(stamp.bytes).unwrap_or_default().min(self.limits.file_bytes);
        File::from(file).take(most).read_to_end(&mut bytes)?;
        let document = text(bytes).map(|text| Document::new(path, &text));
        Ok(Seen { stamp, is_settled, document })
    }
}

/// A text, if it is one: in UTF-8, and without the sign that no text has.
fn text(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[allow(clippy::unnecessary_cast, reason = "types differ by system")]
fn place(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}
