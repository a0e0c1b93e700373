//! Where a backup goes: beside its place until it is whole, then at its place.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::leftover::{self, END, MARK};
use crate::{Exit, Failure};

/// What SQLite keeps beside a database that is in use.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A backup that is being made. What is unfinished is removed when this is dropped.
pub(super) struct Target {
    path: PathBuf,
    folder: PathBuf,
    /// The copy of the database, while it is made.
    pub(super) new_file: PathBuf,
    /// The copies of tapes that are kept as files, while they are made.
    pub(super) new_tapes: PathBuf,
}

impl Target {
    /// Checks that a backup can be made there.
    pub(super) fn new(path: &Path, database: &Path, force: bool) -> Result<Self, Failure> {
        let wrong = |message: String| {
            let hint = "give the path of a file that is to be made, in a directory that is there";
            Failure::new("usage", message, Exit::Usage).hinted(hint)
        };
        let shown = path.display();
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            return Err(wrong(format!("{shown} is a directory")));
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().map_err(|error| wrong(format!("{shown} cannot be made: {error}")))?;
        let path = folder.join(name);
        // Also through a link: replacing the store with its own copy would lose what is written meanwhile.
        let is_same = |other: &Path| matches!((path.canonicalize(), other.canonicalize()), (Ok(a), Ok(b)) if a == b);
        if is_same(database) || BESIDE.iter().any(|end| is_same(&with_end(database, end))) {
            return Err(wrong(format!("{shown} is the store itself")));
        }
        let hidden = |end: &str| {
            let mut hidden = OsString::from(".");
            hidden.push(name);
            hidden.push(format!("{end}{MARK}{}{END}", std::process::id()));
            folder.join(hidden)
        };
        let target = Self { new_file: hidden(""), new_tapes: hidden(".tapes"), path, folder };
        let there = target.places().into_iter().find(|place| place.symlink_metadata().is_ok());
        match there {
            Some(place) if !force => {
                Err(Failure::new("backup-exists", format!("{} is there already", place.display()), Exit::Usage))
            }
            _ => {
                for left in leftover::left(&target.folder, SystemTime::now()) {
                    remove_unfinished(&left);
                }
                Ok(target)
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the copies of tapes go that are kept as files.
    pub(super) fn tapes(&self) -> PathBuf {
        with_end(&self.path, ".tapes")
    }

    /// Everything that a backup of this path is, or that would be taken for a part of it.
    fn places(&self) -> Vec<PathBuf> {
        let beside = BESIDE.iter().map(|end| with_end(&self.path, end));
        [self.path.clone(), self.tapes()].into_iter().chain(beside).collect()
    }

    /// Makes the folder for tapes, which only its owner can look into.
    pub(super) fn make_tapes(&self) -> Result<&Path, Failure> {
        DirBuilder::new().mode(0o700).create(&self.new_tapes).map_err(|error| self.failed(&error))?;
        Ok(&self.new_tapes)
    }

    /// Puts what is whole in its place, and makes that last.
    pub(super) fn place(self) -> Result<(), Failure> {
        self.place_all().map_err(|error| self.failed(&error))
    }

    fn place_all(&self) -> io::Result<()> {
        remove(&self.tapes())?;
        // A log of the file that was there before would be taken for one of the new file.
        for end in BESIDE {
            remove(&with_end(&self.path, end))?;
        }
        if self.new_tapes.is_dir() {
            std::fs::rename(&self.new_tapes, self.tapes())?;
        }
        std::fs::rename(&self.new_file, &self.path)?;
        File::open(&self.folder)?.sync_all()
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::new("store-failed", format!("cannot write {}: {error}", self.path.display()), Exit::Store)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let beside = BESIDE.iter().map(|end| with_end(&self.new_file, end));
        for unfinished in [self.new_file.clone(), self.new_tapes.clone()].into_iter().chain(beside) {
            remove_unfinished(&unfinished);
        }
    }
}

fn remove_unfinished(path: &Path) {
    if let Err(error) = remove(path) {
        tracing::warn!(path = %path.display(), %error, "an unfinished backup was not removed");
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    PathBuf::from(path)
}

/// Removes a file or a folder, if there is one.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
