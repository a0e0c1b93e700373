//! Changes of the files of a home.

use std::path::{Path, PathBuf};

/// Change of files while no process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OfflineChange {
    None,
    TakeBackup,
    RemoveDatabase,
    RemoveLog,
    CopyBackup,
    RemoveLocks,
    Restore,
    KilledRestore,
    Rollback,
}

impl OfflineChange {
    /// All changes; frequent ones occur more than once.
    pub const OFFLINE_CHOICES: [Self; 12] = [
        Self::None,
        Self::None,
        Self::None,
        Self::TakeBackup,
        Self::TakeBackup,
        Self::RemoveDatabase,
        Self::RemoveLog,
        Self::CopyBackup,
        Self::RemoveLocks,
        Self::Restore,
        Self::KilledRestore,
        Self::Rollback,
    ];

    /// Returns true if the change must not lose anything.
    pub fn is_harmless(self) -> bool {
        matches!(self, Self::None | Self::TakeBackup | Self::RemoveLocks)
    }
}

/// Change of files under a running host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LiveChange {
    None,
    RemoveDatabase,
    RemoveLog,
    ReplaceByBackup,
    /// Writes the backup into the open file, as `cp` does.
    OverwriteByBackup,
    MoveHome,
    RemoveHome,
    RemoveLocks,
    RemoveLockFolder,
    /// Puts unlocked copies in the place of the lock files, as a copy of the home does that is put back.
    ReplaceLocks,
    /// Copies an older database with its log and index over those in use.
    PutOlderFiles,
    /// Copies an older log over the one in use.
    PutOlderLog,
    CutLog,
}

impl LiveChange {
    /// All changes; frequent ones occur more than once.
    pub const LIVE_CHOICES: [Self; 17] = [
        Self::None,
        Self::None,
        Self::None,
        Self::None,
        Self::None,
        Self::RemoveDatabase,
        Self::RemoveLog,
        Self::ReplaceByBackup,
        Self::OverwriteByBackup,
        Self::MoveHome,
        Self::RemoveHome,
        Self::RemoveLocks,
        Self::RemoveLockFolder,
        Self::ReplaceLocks,
        Self::PutOlderFiles,
        Self::PutOlderLog,
        Self::CutLog,
    ];

    /// Returns true if the change must not lose anything.
    pub fn is_harmless(self) -> bool {
        matches!(self, Self::None | Self::MoveHome | Self::RemoveLocks | Self::RemoveLockFolder | Self::ReplaceLocks)
    }

    /// Returns true if only a host that is alone in its home notices the change in any case.
    pub fn needs_single_host(self) -> bool {
        self == Self::OverwriteByBackup
    }

    /// Applies the change to a home. `backup` is the newest one.
    pub fn apply(self, home: &Path, backup: Option<&Path>) {
        match self {
            Self::None => {}
            Self::RemoveDatabase => remove_database(home),
            Self::RemoveLog => remove_log(home),
            Self::ReplaceByBackup => {
                if let Some(backup) = backup {
                    let staged = home.join("staged.db");
                    std::fs::copy(backup, &staged).expect("a copy of the backup");
                    std::fs::rename(staged, home.join("capstan.db")).expect("the database is replaced");
                }
            }
            Self::OverwriteByBackup => {
                if let Some(backup) = backup {
                    std::fs::copy(backup, home.join("capstan.db")).expect("the database is overwritten");
                }
            }
            Self::MoveHome => std::fs::rename(home, moved_home(home)).expect("the home is moved"),
            Self::RemoveHome => {
                // A host may create a file during the removal.
                while home.exists() {
                    let _not_empty = std::fs::remove_dir_all(home);
                }
            }
            Self::RemoveLocks => remove_locks(home),
            Self::RemoveLockFolder => {
                let _changed = std::fs::remove_dir_all(home.join("owners"));
            }
            Self::ReplaceLocks => replace_locks(home),
            Self::PutOlderFiles => put_back(home, &DATABASE_FILES),
            Self::PutOlderLog => put_back(home, &["capstan.db-wal"]),
            Self::CutLog => {
                std::fs::write(home.join("capstan.db-wal"), b"").expect("the log is cut");
            }
        }
    }
}

const DATABASE_FILES: [&str; 3] = ["capstan.db", "capstan.db-wal", "capstan.db-shm"];

fn saved_files(home: &Path) -> PathBuf {
    home.with_file_name("saved-files")
}

/// Copies the files of a database in use, for a change that puts them back.
pub fn save_files(home: &Path) {
    let saved = saved_files(home);
    std::fs::create_dir_all(&saved).expect("a folder");
    for name in DATABASE_FILES {
        std::fs::copy(home.join(name), saved.join(name)).expect("a copy of a file in use");
    }
}

/// Copies saved files over those in use, which stay the same files.
fn put_back(home: &Path, names: &[&str]) {
    for name in names {
        std::fs::copy(saved_files(home).join(name), home.join(name)).expect("an older file is put in place");
    }
}

/// Path of a home that was moved away.
pub fn moved_home(home: &Path) -> PathBuf {
    home.with_file_name("moved-home")
}

pub fn remove_database(home: &Path) {
    remove_file(&home.join("capstan.db"));
    remove_log(home);
}

pub fn remove_log(home: &Path) {
    for name in ["capstan.db-wal", "capstan.db-shm"] {
        remove_file(&home.join(name));
    }
}

/// Copies a backup by hand, as an operator does.
pub fn copy_backup(home: &Path, backup: &Path) {
    remove_database(home);
    std::fs::copy(backup, home.join("capstan.db")).expect("a copy of the backup");
}

/// Removes the lock files of all processes.
pub fn remove_locks(home: &Path) {
    for file in std::fs::read_dir(home.join("owners")).into_iter().flatten().flatten() {
        remove_file(&file.path());
    }
}

/// Replaces the lock files of all processes by unlocked copies.
fn replace_locks(home: &Path) {
    for file in std::fs::read_dir(home.join("owners")).into_iter().flatten().flatten() {
        let copy = home.join("copied.lock");
        // A lock file may have been renamed or removed since it was listed.
        if std::fs::copy(file.path(), &copy).is_ok() && file.path().exists() {
            std::fs::rename(copy, file.path()).expect("the lock file is replaced");
        }
    }
}

fn remove_file(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{}: {error}", path.display()),
        _ => {}
    }
}
