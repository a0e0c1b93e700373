//! Detection of backups that were interrupted by the death of their process.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Part of the name of an unfinished backup before the process id.
pub(super) const BACKUP_NAME_MARKER: &str = ".capstan-";
/// Part of the name of an unfinished backup after the process id; SQLite may append its own suffixes.
pub(super) const BACKUP_NAME_SUFFIX: &str = ".new";

/// Minimum time without writes of a stale backup. The process may run on another machine that shares the folder, where its
/// id means nothing here; a live backup writes continuously.
const STALE_BACKUP_AGE: Duration = Duration::from_mins(10);

/// Unfinished backups in a folder whose processes are dead.
pub(super) fn find_stale_backups(folder: &Path, now: SystemTime) -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_orphaned = |path: &PathBuf| {
        let process = path.file_name().and_then(OsStr::to_str).and_then(parse_process_id);
        process.is_some_and(|process| !is_process_alive(process)) && is_stale(path, now)
    };
    files.filter_map(|file| Some(file.ok()?.path())).filter(is_orphaned).collect()
}

/// Process id in the name of an unfinished backup.
fn parse_process_id(name: &str) -> Option<Pid> {
    let (_, marked) = name.strip_prefix('.')?.rsplit_once(BACKUP_NAME_MARKER)?;
    let (number, _) = marked.split_once(BACKUP_NAME_SUFFIX)?;
    Pid::from_raw(number.parse().ok()?)
}

fn is_process_alive(process: Pid) -> bool {
    test_kill_process(process) != Err(Errno::SRCH)
}

fn is_stale(path: &Path, now: SystemTime) -> bool {
    let modified = path.symlink_metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|age| age > STALE_BACKUP_AGE))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;
    use std::time::SystemTime;

    use super::{STALE_BACKUP_AGE, find_stale_backups, parse_process_id};

    #[test]
    fn only_old_files_of_dead_processes_are_stale() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (dead, alive) = (child.id(), std::process::id());
        let folder = tempfile::tempdir().unwrap();
        let names = [
            format!(".a.db.capstan-{dead}.new"),
            format!(".a.db.capstan-{alive}.new"),
            format!(".a.db.{dead}.new"),
            "a.db".to_owned(),
        ];
        for name in &names {
            File::create(folder.path().join(name)).unwrap();
        }
        let now = SystemTime::now();
        assert!(find_stale_backups(folder.path(), now).is_empty(), "its process may run on another machine");
        assert_eq!(find_stale_backups(folder.path(), now + STALE_BACKUP_AGE * 2), [folder.path().join(&names[0])]);
    }

    #[test]
    fn process_id_is_parsed_from_the_name() {
        for name in [".a.db.capstan-12.new", ".a.db.tapes.capstan-12.new", ".a.db.capstan-12.new-wal"] {
            assert_eq!(parse_process_id(name).map(|process| process.as_raw_nonzero().get()), Some(12), "{name}");
        }
        for name in ["a.db.capstan-12.new", ".a.db.capstan-x.new", ".a.db.12.new", ".capstan-12"] {
            assert_eq!(parse_process_id(name), None, "{name}");
        }
    }
}
