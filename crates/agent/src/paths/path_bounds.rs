//! Rules for the paths that may be used.

use std::path::{Component, Path, PathBuf};

use capstan_hooks::contracts::ToolError;

use super::bounded_path::BoundedPath;
use super::steering_files::is_steering_file;

/// Directories of kernel interfaces: reading or writing their files has side effects.
const KERNEL_DIRS: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Exception to [`KERNEL_DIRS`]: regular files in memory.
const SHARED_MEMORY_DIR: &str = "/dev/shm";

/// Paths that may be used: the workspace and additional roots, except for denied directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathBounds {
    /// Additional files and directories that may be used.
    pub extra_roots: Vec<PathBuf>,
    /// Directories that stay denied even inside an allowed one.
    pub denied: Vec<PathBuf>,
}

impl PathBounds {
    /// Opens a regular file within these bounds for reading; symbolic links must stay within them. A violation of
    /// these rules is an error without an OS error code.
    pub fn open(&self, workspace: &Path, path: &str) -> std::io::Result<std::fs::File> {
        self.resolve_path(workspace, path).map_err(std::io::Error::other)?.open()
    }

    /// Resolves a path to write. Files that steer an agent are refused, unless the user allows one by name: an additional
    /// root that is such a file or folder itself.
    pub(crate) fn resolve_for_write(&self, workspace: &Path, path: &str) -> Result<BoundedPath, ToolError> {
        let target = self.resolve_path(workspace, path)?;
        let resolved = target.resolved();
        let roots = self.extra_roots.iter().filter_map(|root| root.canonicalize().ok());
        let is_granted = |root: PathBuf| is_steering_file(Path::new("/"), &root) && resolved.starts_with(&root);
        let workspace = workspace.canonicalize().map_err(|error| path_error(path, &error))?;
        let is_closed = is_steering_file(&workspace, &resolved) || is_steering_file(target.root(), &resolved);
        if is_closed && !roots.into_iter().any(is_granted) {
            return Err(ToolError::new(format!(
                "{path} steers agents or Git, so the file tools do not change it; the user can name it in allow_paths"
            )));
        }
        Ok(target)
    }

    /// Resolves a path, following symbolic links, and checks that it is within these bounds. The path need not exist,
    /// but no part of it may be a dangling link.
    pub(crate) fn resolve_path(&self, workspace: &Path, path: &str) -> Result<BoundedPath, ToolError> {
        if path.is_empty() {
            return Err(ToolError::new("the path must not be empty"));
        }
        if path.contains('\0') {
            return Err(ToolError::new("the path must not contain a NUL byte"));
        }
        let root = workspace.canonicalize().map_err(|error| path_error(path, &error))?;
        let resolved = resolve_links(&root.join(path));
        let allowed = self.extra_roots.iter().filter_map(|root| root.canonicalize().ok());
        // The path itself may look as if it were inside.
        let is_plain = !Path::new(path).components().any(|part| part == Component::ParentDir);
        let has_link = is_plain && root.join(path).starts_with(&root);
        // Outside of the bounds every path is refused in the same words, whether it exists or not.
        let position = resolved.as_ref().unwrap_or_else(|unresolved| &unresolved.existing);
        let root = std::iter::once(root).chain(allowed).find(|root| position.starts_with(root));
        let Some(root) = root else {
            let via = if has_link { " leads through a link, and its target" } else { "" };
            return Err(ToolError::new(format!("{path}{via} is outside the workspace and the allowed paths")));
        };
        let resolved = resolved.map_err(|unresolved| ToolError::new(format!("{path}: {}", unresolved.reason)))?;
        let canonical = |dir: &PathBuf| dir.canonicalize().unwrap_or_else(|_| dir.clone());
        if self.denied.iter().map(canonical).any(|denied| resolved.starts_with(denied)) {
            return Err(ToolError::new(format!("{path} is in Capstan's own directory; access is denied")));
        }
        if KERNEL_DIRS.iter().any(|dir| resolved.starts_with(dir)) && !resolved.starts_with(SHARED_MEMORY_DIR) {
            return Err(ToolError::new(format!("{path} is a kernel interface; access is denied")));
        }
        Ok(BoundedPath::new(path, &root, &resolved))
    }
}

/// Resolves a path, following symbolic links, without checking any bounds.
pub(crate) fn resolve_target(workspace: &Path, path: &str) -> Option<PathBuf> {
    resolve_links(&workspace.canonicalize().ok()?.join(path)).ok()
}

pub(crate) fn path_error(path: &str, error: &std::io::Error) -> ToolError {
    ToolError::new(format!("{path}: {error}"))
}

/// Path that cannot be resolved.
struct UnresolvedPath {
    /// The longest part that can be, with links resolved.
    existing: PathBuf,
    reason: String,
}

/// Resolves symbolic links. A path that does not exist is resolved as far as it exists.
fn resolve_links(path: &Path) -> Result<PathBuf, UnresolvedPath> {
    let unresolved = |reason: &str| UnresolvedPath {
        existing: path.ancestors().find_map(|ancestor| ancestor.canonicalize().ok()).unwrap_or_default(),
        reason: reason.to_owned(),
    };
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        match existing.canonicalize() {
            Ok(resolved) => return Ok(missing.iter().rev().fold(resolved, |path, name| path.join(name))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(unresolved(&error.to_string())),
        }
        if existing.symlink_metadata().is_ok() {
            return Err(unresolved("it is a dangling symbolic link"));
        }
        // Below a missing directory only plain names are allowed: `..` cannot be resolved there.
        let (Some(Component::Normal(name)), Some(parent)) = (existing.components().next_back(), existing.parent())
        else {
            return Err(unresolved("it passes through a directory that does not exist"));
        };
        missing.push(name);
        existing = parent;
    }
}
