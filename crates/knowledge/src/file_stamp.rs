//! Detection of changed files.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

/// A file modified this shortly before it was read may be modified again without a new time stamp.
const FILE_SETTLE_TIME: Duration = Duration::from_secs(2);

/// Metadata that differs after every change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: i64,
    /// Times of the last change of the content and of the metadata. The second one cannot be set back by a program.
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
        let (device, inode) = file_identity(stat);
        Self {
            device,
            inode,
            bytes: stat.st_size as i64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

impl FileStamp {
    /// Size of the file.
    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or_default()
    }

    /// Returns true if a later change is certain to give another stamp.
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or_default());
        // A change in the future means that the clock was set back.
        now.checked_sub(changed).is_some_and(|age| age > FILE_SETTLE_TIME)
    }
}

/// Device and inode: equal for all paths to the same file or folder.
pub(crate) type FileIdentity = (u64, u64);

#[allow(clippy::unnecessary_cast, reason = "types differ by system")]
pub(crate) fn file_identity(stat: &Stat) -> FileIdentity {
    (stat.st_dev as u64, stat.st_ino as u64)
}
