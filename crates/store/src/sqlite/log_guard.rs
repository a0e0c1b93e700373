//! Guard of the content of the log.
//!
//! `SQLite` trusts its log while the database is open: it never looks at checksums again, writes behind a gap, and
//! follows an older copy of the log and its index. The guard compares the log with the index, and both with their state
//! when they were last looked at.
//!
//! # Proof of the commits
//!
//! - The index records the salts of the log, its last frame, and the checksum of that frame, which covers all frames
//!   before it. The header and the last frame in the file must agree.
//! - While the salts are the same, frames are only added: the last frame of the earlier state must still be there, with
//!   its checksum, and a commit of this process must have added frames.
//! - A restart changes the salts, when the whole log is in the database. The index counts all commits, and the count must
//!   not be lower than before. Older copies of an index with a higher count are recognised by the rows of the last commit
//!   ([`CommitWitness`](super::commit_witness::CommitWitness)).
//!
//! Frames in the middle of the log are not read again.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// Length of one of the two copies of the header of the index.
const INDEX_HEADER_BYTES: usize = 48;
/// Length of the part of it that its checksum covers.
const INDEX_CHECKED_BYTES: usize = 40;
/// Length of the header of the log.
const LOG_HEADER_BYTES: usize = 32;
/// Length of the header of a frame, which a page follows.
const FRAME_HEADER_BYTES: usize = 24;
/// Maximum number of attempts to read an index that another process is writing.
const MAX_READS: u32 = 100;
/// Delay between attempts, after a few immediate ones.
const READ_RETRY_DELAY: Duration = Duration::from_millis(1);
/// Number of attempts without a delay.
const IMMEDIATE_READS: u32 = 10;

/// Content of the log, from the header of its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogContent {
    /// Number of commits of all processes, unless the index was rebuilt.
    commits: u32,
    max_frame: u32,
    page_bytes: u64,
    /// Checksum of the last frame.
    checksum: [u32; 2],
    salts: [u8; 8],
}

/// Result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogProgress {
    /// The log has all commits that it had.
    Complete,
    /// The log was restarted: all earlier commits must be in the database.
    Restarted,
}

/// Change of the log that no process of `SQLite` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogDamage {
    pub(super) detail: &'static str,
    /// The index belongs to the log: both are those of another state.
    pub(super) is_consistent: bool,
}

/// State of the log when it was last looked at.
pub(super) struct LogGuard {
    index: &'static File,
    known: Option<LogContent>,
    /// True if this process has committed since.
    has_committed: bool,
}

impl LogGuard {
    pub(super) fn open(index: &'static File) -> std::io::Result<Self> {
        Ok(Self { index, known: read_state(index)?, has_committed: false })
    }

    /// Records that this process has committed, after the last look.
    pub(super) fn record_commit(&mut self) {
        self.has_committed = true;
    }

    /// Returns true if the index is the one of the last look. Called inside a write transaction, when no other process can
    /// change it.
    pub(super) fn is_unchanged(&self) -> std::io::Result<bool> {
        Ok(!self.has_committed && self.known.is_some() && read_state(self.index)? == self.known)
    }

    /// Compares the log with its index and with the last look. The outer error is a failure to read them.
    pub(super) fn check(&mut self, log: &File) -> std::io::Result<Result<LogProgress, LogDamage>> {
        for _ in 0..MAX_READS {
            // An index that stays invalid was left by a dead process, or is foreign. `SQLite` rebuilds it from the log at the
            // start of the next transaction, and the guard looks again then.
            let Some(state) = read_state(self.index)? else { return Ok(Ok(LogProgress::Complete)) };
            let compared = self.compare(state, log)?;
            if read_state(self.index)? != Some(state) {
                // Another process has committed or restarted the log in between.
                continue;
            }
            if compared.is_ok() {
                self.known = Some(state);
                self.has_committed = false;
            }
            return Ok(compared);
        }
        // Other processes commit all the time; the commits of this one are checked when they pause.
        Ok(Ok(LogProgress::Complete))
    }

    fn compare(&self, state: LogContent, log: &File) -> std::io::Result<Result<LogProgress, LogDamage>> {
        if let Some(detail) = state.find_mismatch(log)? {
            return Ok(Err(LogDamage { detail, is_consistent: false }));
        }
        let Some(known) = self.known else { return Ok(Ok(LogProgress::Restarted)) };
        let gone_back =
            Ok(Err(LogDamage { detail: "an older copy took the place of its content", is_consistent: true }));
        if state.salts != known.salts {
            let added = state.commits.wrapping_sub(known.commits).cast_signed();
            return if added < i32::from(self.has_committed) { gone_back } else { Ok(Ok(LogProgress::Restarted)) };
        }
        if state.max_frame < known.max_frame || (self.has_committed && state.max_frame == known.max_frame) {
            return gone_back;
        }
        let is_prefix = known.max_frame == 0 || state == known || known.has_last_frame(log)?;
        Ok(if is_prefix {
            Ok(LogProgress::Complete)
        } else {
            Err(LogDamage { detail: "its content was overwritten", is_consistent: false })
        })
    }

    /// Returns true if `SQLite` must not apply a damaged log to the database: it is another log, or it ends before the
    /// frames that were checkpointed. A log without a header is ignored by `SQLite`.
    pub(super) fn is_foreign(&self, log: &File, backfilled: u32) -> bool {
        let Some(known) = self.known else { return false };
        let mut header = [0; LOG_HEADER_BYTES];
        if log.read_exact_at(&mut header, 0).is_err() || header == [0; LOG_HEADER_BYTES] {
            return false;
        }
        let has_checkpointed_frames = || {
            let mut frame = [0; FRAME_HEADER_BYTES];
            let read = log.read_exact_at(&mut frame, frame_offset(backfilled.max(1), known.page_bytes));
            read.is_ok() && frame[8..16] == known.salts
        };
        header[16..24] != known.salts || (backfilled > 0 && !has_checkpointed_frames())
    }
}

impl LogContent {
    /// Returns the difference between this state and the file, which may have more frames.
    fn find_mismatch(&self, log: &File) -> std::io::Result<Option<&'static str>> {
        // The file of an empty log has no meaning: it is that of the log before, or is being written.
        if self.max_frame == 0 {
            return Ok(None);
        }
        let last_frame = frame_offset(self.max_frame, self.page_bytes);
        if log.metadata()?.len() < last_frame + FRAME_HEADER_BYTES as u64 + self.page_bytes {
            return Ok(Some("it is shorter than the commits in it"));
        }
        let mut header = [0; LOG_HEADER_BYTES];
        log.read_exact_at(&mut header, 0)?;
        let is_same = header[16..24] == self.salts && self.has_last_frame(log)?;
        Ok((!is_same).then_some("its content was overwritten"))
    }

    /// Returns true if the file has the last frame of this state at its place, and so the same frames before it.
    fn has_last_frame(&self, log: &File) -> std::io::Result<bool> {
        let mut frame = [0; FRAME_HEADER_BYTES];
        log.read_exact_at(&mut frame, frame_offset(self.max_frame, self.page_bytes))?;
        let checksum = [big_endian(&frame, 16), big_endian(&frame, 20)];
        Ok(frame[8..16] == self.salts && checksum == self.checksum)
    }
}

/// Offset of a frame; the first one has the number 1.
fn frame_offset(frame: u32, page_bytes: u64) -> u64 {
    LOG_HEADER_BYTES as u64 + u64::from(frame - 1) * (FRAME_HEADER_BYTES as u64 + page_bytes)
}

/// Reads the header of the index; `None` if it stays invalid.
fn read_state(index: &File) -> std::io::Result<Option<LogContent>> {
    for attempt in 1..=MAX_READS {
        let mut copies = [0; 2 * INDEX_HEADER_BYTES];
        index.read_exact_at(&mut copies, 0)?;
        let (first, second) = copies.split_at(INDEX_HEADER_BYTES);
        if first == second
            && let Some(state) = LogContent::parse(first)
        {
            return Ok(Some(state));
        }
        if attempt > IMMEDIATE_READS {
            std::thread::sleep(READ_RETRY_DELAY);
        }
    }
    Ok(None)
}

impl LogContent {
    fn parse(header: &[u8]) -> Option<Self> {
        let number = |offset: usize| u32::from_ne_bytes(array(header, offset));
        let [mut first, mut second] = [0_u32; 2];
        for offset in (0..INDEX_CHECKED_BYTES).step_by(8) {
            first = first.wrapping_add(number(offset)).wrapping_add(second);
            second = second.wrapping_add(number(offset + 4)).wrapping_add(first);
        }
        let is_initialized = header[12] != 0;
        if !is_initialized || [first, second] != [number(40), number(44)] {
            return None;
        }
        let page_bytes = u64::from(u16::from_ne_bytes(array(header, 14)));
        Some(Self {
            commits: number(8),
            max_frame: number(16),
            // The largest size does not fit, and is stored as 1.
            page_bytes: if page_bytes == 1 { 65_536 } else { page_bytes },
            checksum: [number(24), number(28)],
            // Stored as in the log.
            salts: array(header, 32),
        })
    }
}

fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[offset..offset + N]);
    array
}

fn big_endian(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes(array(bytes, offset))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::*;
    use crate::sqlite::{SqliteOptions, schema};

    /// Open database with a guard, and a copy of its files.
    struct GuardFixture {
        _folder: TempDir,
        folder: PathBuf,
        connection: Connection,
        guard: LogGuard,
        log: File,
    }

    /// In another process: a handle that this one closes would release its locks.
    fn shell(folder: &Path, script: &str) {
        assert!(Command::new("sh").args(["-c", script]).current_dir(folder).status().unwrap().success(), "{script}");
    }

    impl GuardFixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("capstan.db");
            let connection = schema::open_writer(&path, SqliteOptions::default()).unwrap();
            let index = Box::leak(Box::new(File::open(path.with_extension("db-shm")).unwrap()));
            let log = File::open(path.with_extension("db-wal")).unwrap();
            let guard = LogGuard::open(index).unwrap();
            let mut fixture = Self { folder: folder.path().to_path_buf(), _folder: folder, connection, guard, log };
            fixture.write();
            assert_eq!(fixture.check(), Ok(LogProgress::Complete));
            shell(&fixture.folder, "mkdir old && cp capstan.db* old/");
            fixture
        }

        fn write(&mut self) {
            self.connection
                .execute("INSERT INTO blobs (hash, bytes) VALUES (random(), randomblob(20000))", [])
                .unwrap();
            self.guard.record_commit();
        }

        fn checkpoint(&self, mode: &str) {
            let sql = format!("PRAGMA wal_checkpoint({mode})");
            let is_blocked = self.connection.query_row(&sql, [], |row| row.get::<_, bool>(0)).unwrap();
            assert!(!is_blocked, "{mode}");
        }

        fn check(&mut self) -> Result<LogProgress, LogDamage> {
            self.guard.check(&self.log).unwrap()
        }
    }

    #[test]
    fn x07_commit_that_disappears_with_its_files_is_noticed() {
        let mut files = GuardFixture::new();
        files.write();
        shell(&files.folder, "cp old/* .");
        assert!(files.check().is_err_and(|damage| damage.is_consistent), "the log is that of the last look");
    }

    #[test]
    fn x07_commit_behind_a_gap_of_the_log_is_noticed() {
        let mut files = GuardFixture::new();
        files.write();
        assert_eq!(files.check(), Ok(LogProgress::Complete));
        shell(&files.folder, "cp old/capstan.db-wal .");
        files.write();
        let damage = files.check().unwrap_err();
        assert!(!damage.is_consistent, "SQLite has written behind the end of the file: {damage:?}");
    }

    #[test]
    fn x07_restart_of_the_log_counts_commits() {
        for mode in ["RESTART", "TRUNCATE"] {
            let mut files = GuardFixture::new();
            files.checkpoint(mode);
            files.write();
            assert_eq!(files.check(), Ok(LogProgress::Restarted), "{mode}");
            shell(&files.folder, "cp old/* .");
            assert!(files.check().is_err(), "{mode}");
        }
    }

    #[test]
    fn x07_index_that_is_rebuilt_from_the_log_is_no_damage() {
        let mut files = GuardFixture::new();
        shell(&files.folder, "head -c 136 /dev/zero | dd of=capstan.db-shm conv=notrunc");
        assert_eq!(files.check(), Ok(LogProgress::Complete), "SQLite rebuilds it");
        files.write();
        assert_eq!(files.check(), Ok(LogProgress::Complete));
    }
}
