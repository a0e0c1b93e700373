//! What backups left whose process was killed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// What marks a name as that of a backup that is being made, before the number of its process.
pub(super) const BACKUP_NAME_MARKER: &str = ".capstan-";
/// What it ends with, but for what SQLite adds.
pub(super) const BACKUP_NAME_SUFFIX: &str = ".new";

/// How long nothing was written to what counts as left. The process may be one of another machine, whose number says
/// nothing here; it writes all the time.
const STALE_BACKUP_AGE: Duration = Duration::from_mins(10);

/// The unfinished backups in a folder whose processes are gone.
pub(super) fn find_stale_backups(folder: &Path, now: SystemTime) -> Vec<PathBuf> {
    let Ok(found) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_left = |path: &PathBuf| {
        let process = path.file_name().and_then(OsStr::to_str).and_then(parse_process_id);
        process.is_some_and(|process| !is_process_alive(process)) && is_stale(path, now)
    };
    found.filter_map(|file| Some(file.ok()?.path())).filter(is_left).collect()
}

/// The process that makes a backup of this name.
fn parse_process_id(name: &str) -> Option<Pid> {
    let (_, marked) = name.strip_prefix('.')?.rsplit_once(BACKUP_NAME_MARKER)?;
    let (number, _) = marked.split_once(BACKUP_NAME_SUFFIX)?;
    Pid::from_raw(number.parse().ok()?)
}

fn is_process_alive(process: Pid) -> bool {
    test_kill_process(process) != Err(Errno::SRCH)
}

fn is_stale(path: &Path, now: SystemTime) -> bool {
    let written = path.symlink_metadata().and_then(|found| found.modified());
    written.is_ok_and(|written| now.duration_since(written).is_ok_and(|still| still > STALE_BACKUP_AGE))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;
    use std::time::SystemTime;

    use super::{STALE_BACKUP_AGE, find_stale_backups, parse_process_id};

    #[test]
    fn only_what_a_dead_process_left_a_while_ago_is_found() {
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
        assert!(find_stale_backups(folder.path(), now).is_empty(), "it may be one of another machine");
        assert_eq!(find_stale_backups(folder.path(), now + STALE_BACKUP_AGE * 2), [folder.path().join(&names[0])]);
    }

    #[test]
    fn a_name_tells_its_process() {
        for name in [".a.db.capstan-12.new", ".a.db.tapes.capstan-12.new", ".a.db.capstan-12.new-wal"] {
            assert_eq!(parse_process_id(name).map(|process| process.as_raw_nonzero().get()), Some(12), "{name}");
        }
        for name in ["a.db.capstan-12.new", ".a.db.capstan-x.new", ".a.db.12.new", ".capstan-12"] {
            assert_eq!(parse_process_id(name), None, "{name}");
        }
    }
}
