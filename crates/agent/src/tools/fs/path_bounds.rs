//! Where the file tools may work.

use std::path::{Component, Path, PathBuf};

use capstan_hooks::contracts::ToolError;

use super::bounded_path::BoundedPath;

/// Files there are no files: reading them asks the kernel, writing them drives it.
const KERNEL_DIRS: [&str; 3] = ["/proc", "/sys", "/dev"];
/// But for these, which are files in memory.
const SHARED_MEMORY_DIR: &str = "/dev/shm";

/// Where the file tools may work: in the workspace, in the folders the user allows beside it, and in none of those that
/// are closed, wherever they lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathBounds {
    /// Folders and files beside the workspace.
    pub extra_roots: Vec<PathBuf>,
    /// Folders that stay closed also where they lie within another that is open.
    pub denied: Vec<PathBuf>,
}

impl PathBounds {
    /// A file within these bounds, to be read: a regular one, and a link only where it does not lead out of them. An error
    /// without a code of the system is what these rules say.
    pub fn open(&self, workspace: &Path, path: &str) -> std::io::Result<std::fs::File> {
        self.resolve_path(workspace, path).map_err(std::io::Error::other)?.open()
    }

    /// The place a path means, links followed, if it lies within these bounds. It need not exist, but then no part of it
    /// may be a link that leads nowhere.
    pub(super) fn resolve_path(&self, workspace: &Path, path: &str) -> Result<BoundedPath, ToolError> {
        if path.is_empty() || path.contains('\0') {
            return Err(ToolError::new("the path must not be empty"));
        }
        let root = workspace.canonicalize().map_err(|error| path_error(path, &error))?;
        let resolved = resolve_links(&root.join(path)).map_err(|reason| ToolError::new(format!("{path}: {reason}")))?;
        let allowed = self.extra_roots.iter().filter_map(|folder| folder.canonicalize().ok());
        let root = std::iter::once(root).chain(allowed).find(|root| resolved.starts_with(root));
        let Some(root) = root else {
            return Err(ToolError::new(format!("{path} lies outside the workspace, which is not allowed")));
        };
        let whole = |folder: &PathBuf| folder.canonicalize().unwrap_or_else(|_| folder.clone());
        if self.denied.iter().map(whole).any(|closed| resolved.starts_with(closed)) {
            return Err(ToolError::new(format!("{path} belongs to Capstan itself, which is not allowed")));
        }
        if KERNEL_DIRS.iter().any(|folder| resolved.starts_with(folder)) && !resolved.starts_with(SHARED_MEMORY_DIR) {
            return Err(ToolError::new(format!("{path} belongs to the system, which is not allowed")));
        }
        Ok(BoundedPath::new(path, &root, &resolved))
    }
}

/// The file a path means, links followed, whether it may be worked on or not.
pub(super) fn file(workspace: &Path, path: &str) -> Option<PathBuf> {
    resolve_links(&workspace.canonicalize().ok()?.join(path)).ok()
}

pub(super) fn path_error(path: &str, error: &std::io::Error) -> ToolError {
    ToolError::new(format!("{path}: {error}"))
}

/// The path without links. What is not there yet is resolved as far as it is there.
fn resolve_links(path: &Path) -> Result<PathBuf, String> {
    let mut missing = Vec::new();
    let mut there = path;
    loop {
        match there.canonicalize() {
            Ok(found) => return Ok(missing.iter().rev().fold(found, |path, name| path.join(name))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.to_string()),
        }
        if there.symlink_metadata().is_ok() {
            return Err("it is a link to something that is not there".to_owned());
        }
        // What follows something that is not there can only go down from it.
        let (Some(Component::Normal(name)), Some(parent)) = (there.components().next_back(), there.parent()) else {
            return Err("it goes through a folder that is not there".to_owned());
        };
        missing.push(name);
        there = parent;
    }
}
