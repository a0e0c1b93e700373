//! What backups left whose process was killed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// What marks a name as that of a backup that is being made, before the number of its process.
pub(super) const MARK: &str = ".capstan-";
/// What it ends with, but for what SQLite adds.
pub(super) const END: &str = ".new";

/// How long nothing was written to what counts as left. The process may be one of another machine, whose number says
/// nothing here; it writes all the time.
const STILL: Duration = Duration::from_mins(10);

/// The unfinished backups in a folder whose processes are gone.
pub(super) fn left(folder: &Path, now: SystemTime) -> Vec<PathBuf> {
    let Ok(found) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_left = |path: &PathBuf| {
        let process = path.file_name().and_then(OsStr::to_str).and_then(process_of);
        process.is_some_and(|process| !is_alive(process)) && is_still(path, now)
    };
    found.filter_map(|file| Some(file.ok()?.path())).filter(is_left).collect()
}

/// The process that makes a backup of this name.
fn process_of(name: &str) -> Option<Pid> {
    let (_, marked) = name.strip_prefix('.')?.rsplit_once(MARK)?;
    let (number, _) = marked.split_once(END)?;
    Pid::from_raw(number.parse().ok()?)
}

fn is_alive(process: Pid) -> bool {
    test_kill_process(process) != Err(Errno::SRCH)
}

fn is_still(path: &Path, now: SystemTime) -> bool {
    let written = path.symlink_metadata().and_then(|found| found.modified());
    written.is_ok_and(|written| now.duration_since(written).is_ok_and(|still| still > STILL))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;
    use std::time::SystemTime;

    use super::{STILL, left, process_of};

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
        assert!(left(folder.path(), now).is_empty(), "it may be one of another machine");
        assert_eq!(left(folder.path(), now + STILL * 2), [folder.path().join(&names[0])]);
    }

    #[test]
    fn a_name_tells_its_process() {
        for name in [".a.db.capstan-12.new", ".a.db.tapes.capstan-12.new", ".a.db.capstan-12.new-wal"] {
            assert_eq!(process_of(name).map(|process| process.as_raw_nonzero().get()), Some(12), "{name}");
        }
        for name in ["a.db.capstan-12.new", ".a.db.capstan-x.new", ".a.db.12.new", ".capstan-12"] {
            assert_eq!(process_of(name), None, "{name}");
        }
    }
}
