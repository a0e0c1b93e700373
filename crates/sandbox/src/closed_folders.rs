//! Directories that a command cannot reach.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::SandboxError;

/// Directories that a command can neither read nor write nor list, such as the home of the host.
///
/// Enforced by a mount namespace that hides them and by landlock, which also keeps the command from undoing it. Where the
/// machine allows no mount namespace, landlock alone allows all directories but these: the command then can list, and create
/// files in, no directory that contains one of them.
///
/// A command with closed directories cannot gain privileges (`no_new_privs`), and as root it has no capability that reaches
/// around file permissions to devices, the kernel or mounts.
#[derive(Debug, Clone)]
pub struct ClosedFolders {
    closed: Vec<PathBuf>,
    open: Vec<(PathBuf, FolderAccess)>,
    is_optional: bool,
}

/// Access to an open directory within a closed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FolderAccess {
    /// Read and execute.
    ReadOnly,
    /// Everything that file permissions allow.
    ReadWrite,
}

/// Mechanism that closes directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FolderClosure {
    /// Hidden by mounts, which landlock keeps in place.
    MountNamespaceAndLandlock,
    /// Hidden by mounts.
    MountNamespace,
    /// Not among the directories that landlock allows.
    Landlock,
    /// Not closed: the machine has neither mechanism, and the command was allowed to run without.
    NotEnforced,
}

/// Closed and open directories by their real paths.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FolderRules {
    /// Not nested.
    closed: Vec<OsString>,
    /// Each within a closed one, not nested.
    open: Vec<(OsString, FolderAccess)>,
    pub(crate) is_optional: bool,
}

impl ClosedFolders {
    /// Closes a directory.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { closed: vec![folder.into()], open: Vec::new(), is_optional: false }
    }

    /// Closes another directory.
    pub fn close(mut self, folder: impl Into<PathBuf>) -> Self {
        self.closed.push(folder.into());
        self
    }

    /// Keeps a directory within a closed one open. It must exist, and be reached without symbolic links from there.
    pub fn keep_open(mut self, folder: impl Into<PathBuf>, access: FolderAccess) -> Self {
        self.open.push((folder.into(), access));
        self
    }

    /// Allows the command to run with open directories where the machine can close none. Otherwise it is refused.
    pub fn allow_unenforced(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// Resolves the paths.
    pub(crate) fn resolve(&self) -> Result<FolderRules, SandboxError> {
        let resolve = |folder: &Path| {
            let real = folder.canonicalize();
            real.map_err(|source| SandboxError::ClosedFolder { folder: folder.to_owned(), source })
        };
        let mut closed = Vec::new();
        for folder in &self.closed {
            closed.push((folder, resolve(folder)?));
        }
        let mut open = Vec::new();
        for (folder, access) in &self.open {
            let real = resolve(folder)?;
            let is_within = |(given, closed): &(&PathBuf, PathBuf)| {
                let relative = folder.strip_prefix(given).or_else(|_| folder.strip_prefix(closed));
                relative.is_ok_and(|relative| !relative.as_os_str().is_empty() && closed.join(relative) == real)
            };
            if !closed.iter().any(is_within) {
                let source = io::Error::other("an open directory must be a real directory within a closed one");
                return Err(SandboxError::ClosedFolder { folder: folder.clone(), source });
            }
            open.push((real, *access));
        }
        let closed: Vec<PathBuf> = closed.into_iter().map(|(_, real)| real).collect();
        let is_outermost =
            |folder: &&PathBuf| !closed.iter().any(|other| folder.starts_with(other) && *folder != other);
        let mut outermost: Vec<OsString> = closed.iter().filter(is_outermost).map(|one| one.clone().into()).collect();
        outermost.dedup();
        let open = open.into_iter().map(|(folder, access)| (folder.into_os_string(), access)).collect();
        Ok(FolderRules { closed: outermost, open, is_optional: self.is_optional })
    }
}

impl FolderRules {
    pub(crate) fn closed(&self) -> impl Iterator<Item = &Path> {
        self.closed.iter().map(Path::new)
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = (&Path, FolderAccess)> {
        self.open.iter().map(|(folder, access)| (Path::new(folder), *access))
    }

    /// Returns true if a closed directory is within this one.
    pub(crate) fn has_closed_within(&self, folder: &Path) -> bool {
        self.closed().any(|closed| closed != folder && closed.starts_with(folder))
    }

    /// Returns true for a closed directory itself.
    pub(crate) fn is_closed(&self, folder: &Path) -> bool {
        self.closed().any(|closed| closed == folder)
    }

    /// Chooses the mechanism. `hidden` is the result of hiding the directories, `landlock` the version of landlock.
    pub(crate) fn choose_closure(
        &self,
        hidden: Result<(), String>,
        landlock: Result<u32, String>,
    ) -> Result<FolderClosure, String> {
        match (hidden, landlock) {
            (Ok(()), Ok(_)) => Ok(FolderClosure::MountNamespaceAndLandlock),
            (Ok(()), Err(_)) => Ok(FolderClosure::MountNamespace),
            (Err(_), Ok(_)) => Ok(FolderClosure::Landlock),
            (Err(_), Err(_)) if self.is_optional => Ok(FolderClosure::NotEnforced),
            (Err(hidden), Err(landlock)) => Err(format!("{hidden}; {landlock}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ClosedFolders, FolderAccess, FolderClosure};

    #[test]
    fn x05_closed_folders_need_one_mechanism_or_an_explicit_setting() {
        let folder = tempfile::tempdir().unwrap();
        let required = ClosedFolders::new(folder.path());
        let optional = required.clone().allow_unenforced();
        let (required, optional) = (required.resolve().unwrap(), optional.resolve().unwrap());
        let (no_mounts, no_landlock) = (|| Err("no mounts".to_owned()), || Err("no landlock".to_owned()));
        for rules in [&required, &optional] {
            assert_eq!(rules.choose_closure(Ok(()), Ok(7)), Ok(FolderClosure::MountNamespaceAndLandlock));
            assert_eq!(rules.choose_closure(Ok(()), no_landlock()), Ok(FolderClosure::MountNamespace));
            assert_eq!(rules.choose_closure(no_mounts(), Ok(1)), Ok(FolderClosure::Landlock));
        }
        assert_eq!(required.choose_closure(no_mounts(), no_landlock()), Err("no mounts; no landlock".to_owned()));
        assert_eq!(optional.choose_closure(no_mounts(), no_landlock()), Ok(FolderClosure::NotEnforced));
    }

    #[test]
    fn x05_open_folders_are_real_folders_within_closed_ones() {
        let home = tempfile::tempdir().unwrap();
        let (data, secret) = (home.path().join("data"), home.path().join("secret"));
        std::fs::create_dir(&data).unwrap();
        std::fs::create_dir(&secret).unwrap();
        std::os::unix::fs::symlink(&secret, home.path().join("link")).unwrap();
        let keep_open = |folder| ClosedFolders::new(home.path()).keep_open(folder, FolderAccess::ReadWrite).resolve();
        assert!(keep_open(data).is_ok());
        for folder in [home.path().join("link"), home.path().join("missing"), home.path().into(), "/tmp".into()] {
            let error = keep_open(folder.clone()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot close {}: ", folder.display())), "{error}");
        }
        assert!(ClosedFolders::new(home.path().join("missing")).resolve().is_err());
    }
}
