//! Files that steer an agent or its user's tools, which the file tools do not change without a grant.
//!
//! An agent that could write them would give instructions to later sessions, which may have more authority than its own.

use std::ffi::OsStr;
use std::path::Path;

/// Files and folders that steer an agent, in a folder of any depth.
const STEERING_NAMES: [&str; 4] = ["agents.md", ".agents", "capstan.toml", ".env"];
/// Folder of a Git repository, and what in it makes Git run commands.
const GIT_DIR_NAME: &str = ".git";
const GIT_STEERING_NAMES: [&str; 3] = ["hooks", "config", "config.worktree"];
/// The paths that Capstan and Git read in a workspace; each may be a link to a file of another name.
const STEERING_PATHS: [&str; 6] = ["AGENTS.md", ".agents", "capstan.toml", ".env", ".git/hooks", ".git/config"];

/// Checks if a resolved path under a resolved root is a steering file, or the target of a link that is one.
pub(super) fn is_steering_file(root: &Path, resolved: &Path) -> bool {
    let relative = resolved.strip_prefix(root).unwrap_or(resolved);
    let names: Vec<String> = relative.iter().map(fold_name).collect();
    let is_link_target = |path: &&str| root.join(path).canonicalize().is_ok_and(|target| resolved.starts_with(target));
    has_steering_name(&names) || STEERING_PATHS.iter().any(is_link_target)
}

fn has_steering_name(names: &[String]) -> bool {
    if names.iter().any(|name| STEERING_NAMES.contains(&name.as_str())) {
        return true;
    }
    // A file `.git` names the directory of the repository, and with it the hooks.
    let Some(git_dir) = names.iter().position(|name| name == GIT_DIR_NAME) else { return false };
    let below = &names[git_dir + 1..];
    below.is_empty() || below.iter().any(|name| GIT_STEERING_NAMES.contains(&name.as_str()))
}

/// Folds a name as file systems do that ignore case and invisible characters.
fn fold_name(name: &OsStr) -> String {
    let is_ignored =
        |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    name.to_string_lossy().chars().filter(|c| !is_ignored(*c)).flat_map(char::to_lowercase).collect()
}
