//! Check of the write-ahead log, which grows while another program reads the database.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::json;

use super::report::CheckResult;

/// Length of the write-ahead log above which the check warns.
const MAX_LOG_BYTES: u64 = 64_000_000;
/// Bytes of the WAL index that readers of the database lock.
const READ_LOCK_BYTES: RangeInclusive<u64> = 123..=127;

/// Process that reads the database.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DatabaseReader {
    process_id: u32,
    /// Name of its program; empty if it cannot be read.
    program: String,
}

/// Warns of a long log, and names the readers that keep it from being checkpointed.
pub(super) fn check_log(database: &Path) -> Option<CheckResult> {
    let bytes = database.with_extension("db-wal").metadata().map_or(0, |log| log.len());
    if bytes <= MAX_LOG_BYTES {
        return None;
    }
    let readers = find_readers(database);
    let cause = match readers.as_slice() {
        [] => "another program read the database".to_owned(),
        readers => {
            let names = readers.iter().map(|reader| format!("process {} ({})", reader.process_id, reader.program));
            format!("the database is read by {}", names.collect::<Vec<_>>().join(", "))
        }
    };
    let message = format!("the write-ahead log has {} MB: {cause}", bytes / 1_000_000);
    let hint = "end the program that keeps capstan.db open (`lsof capstan.db-wal` lists it); the log shrinks within a \
                minute after that";
    let listed = readers.iter().map(|reader| json!({ "process_id": reader.process_id, "program": reader.program }));
    let data = json!({ "log_bytes": bytes, "readers": listed.collect::<Vec<_>>() });
    Some(CheckResult::warning("log", message, hint).data(data))
}

/// Processes other than this one that read the database now. Empty where the system does not list its locks.
fn find_readers(database: &Path) -> Vec<DatabaseReader> {
    let Ok(index) = database.with_extension("db-shm").metadata() else { return Vec::new() };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let processes: BTreeSet<u32> = locks.lines().filter_map(|line| reading_process(line, &index)).collect();
    let others = processes.into_iter().filter(|process| *process != std::process::id());
    let reader = |process_id| {
        let program = std::fs::read_to_string(format!("/proc/{process_id}/comm")).unwrap_or_default();
        DatabaseReader { process_id, program: program.trim().to_owned() }
    };
    others.map(reader).collect()
}

/// Process of a line of `/proc/locks`, such as `1: POSIX  ADVISORY  READ 42 fe:00:131 123 123`, if the line is the lock of
/// a reader on this WAL index.
fn reading_process(line: &str, index: &Metadata) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "POSIX", _, "READ", process, file, first, _] = fields.as_slice() else { return None };
    let mut file = file.split(':');
    let mut number = |radix| u64::from_str_radix(file.next()?, radix).ok();
    let (major, minor, inode) = (number(16)?, number(16)?, number(10)?);
    let device = (u64::from(rustix::fs::major(index.dev())), u64::from(rustix::fs::minor(index.dev())));
    let is_index = (major, minor) == device && inode == index.ino();
    let is_read_lock = first.parse().is_ok_and(|first| READ_LOCK_BYTES.contains(&first));
    if is_index && is_read_lock { process.parse().ok() } else { None }
}
