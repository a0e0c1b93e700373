//! Files that steer an agent or its user's tools, which the file tools do not change without a grant.
//!
//! An agent that could write them would give instructions to later sessions, which may have more authority than its own.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Files and folders that steer an agent, in a folder of any depth.
const STEERING_NAMES: [&str; 4] = ["agents.md", ".agents", "capstan.toml", ".env"];
/// Folder of a Git repository, and what in it makes Git run commands.
const GIT_DIR_NAME: &str = ".git";
/// Suffix of the names of repositories without a work tree.
const BARE_REPOSITORY_SUFFIX: &str = ".git";
const GIT_STEERING_NAMES: [&str; 3] = ["hooks", "config", "config.worktree"];
/// The paths that Capstan and Git read in a workspace; each may be a link to a file of another name.
const STEERING_PATHS: [&str; 6] = ["AGENTS.md", ".agents", "capstan.toml", ".env", ".git/hooks", ".git/config"];
/// Folder of skills, each of which may be a link to a folder of another name.
const AGENTS_DIR: &str = ".agents";
/// Depth to which links in [`AGENTS_DIR`] are followed: `skills/NAME/FOLDER/FILE`.
const MAX_LINK_DEPTH: usize = 4;
/// Maximum number of files in [`AGENTS_DIR`] that are inspected.
const MAX_INSPECTED_FILES: usize = 10_000;
/// Settings of a Git repository, and the key that names another folder of hooks.
const GIT_CONFIG_PATH: &str = ".git/config";
const GIT_HOOKS_KEY: &str = "hookspath";
/// Maximum size of the settings of a Git repository that is read.
const MAX_GIT_CONFIG_BYTES: u64 = 1 << 20;

/// Checks if a resolved path under a resolved root is a steering file, or the target of a link that is one.
pub(super) fn is_steering_file(root: &Path, resolved: &Path) -> bool {
    let relative = resolved.strip_prefix(root).unwrap_or(resolved);
    let names: Vec<String> = relative.iter().map(fold_name).collect();
    let is_within = |path: PathBuf| path.canonicalize().is_ok_and(|target| resolved.starts_with(target));
    has_steering_name(&names)
        || STEERING_PATHS.iter().any(|path| is_within(root.join(path)))
        || is_link_target(&root.join(AGENTS_DIR), resolved, MAX_LINK_DEPTH, &mut 0)
        || git_hooks_dir(root).is_some_and(is_within)
}

/// Checks if a folder has a link, at any depth up to `depth`, to a resolved path or to a folder that it is in.
fn is_link_target(folder: &Path, resolved: &Path, depth: usize, inspected: &mut usize) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        *inspected += 1;
        if *inspected > MAX_INSPECTED_FILES {
            // What was not inspected may be a link.
            return true;
        }
        let (path, kind) = (entry.path(), entry.file_type());
        let is_link = kind.as_ref().is_ok_and(std::fs::FileType::is_symlink);
        if is_link && path.canonicalize().is_ok_and(|target| resolved.starts_with(target)) {
            return true;
        }
        let may_be_folder = is_link || kind.is_ok_and(|kind| kind.is_dir());
        if may_be_folder && depth > 1 && is_link_target(&path, resolved, depth - 1, inspected) {
            return true;
        }
    }
    false
}

/// Folder of hooks that the settings of the repository name, if they do.
fn git_hooks_dir(root: &Path) -> Option<PathBuf> {
    let mut text = String::new();
    let config = std::fs::File::open(root.join(GIT_CONFIG_PATH)).ok()?;
    config.take(MAX_GIT_CONFIG_BYTES).read_to_string(&mut text).ok()?;
    let mut values = text.lines().filter_map(|line| line.split_once('='));
    let hooks = values.rfind(|(key, _)| key.trim().eq_ignore_ascii_case(GIT_HOOKS_KEY));
    hooks.map(|(_, path)| root.join(path.trim().trim_matches('"')))
}

fn has_steering_name(names: &[String]) -> bool {
    if names.iter().any(|name| STEERING_NAMES.contains(&name.as_str())) {
        return true;
    }
    // A file `.git` names the directory of the repository, and with it the hooks.
    let Some(git_dir) = names.iter().position(|name| name.ends_with(BARE_REPOSITORY_SUFFIX)) else { return false };
    let below = &names[git_dir + 1..];
    let is_git_file = below.is_empty() && names[git_dir] == GIT_DIR_NAME;
    is_git_file || below.iter().any(|name| GIT_STEERING_NAMES.contains(&name.as_str()))
}

/// Folds a name as file systems do that ignore case and invisible characters.
fn fold_name(name: &OsStr) -> String {
    let is_ignored =
        |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    name.to_string_lossy().chars().filter(|c| !is_ignored(*c)).flat_map(char::to_lowercase).collect()
}
