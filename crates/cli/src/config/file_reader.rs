//! Safe reading of configuration files.
//!
//! Every command reads these files first. The path of one may hold anything: a pipe without a writer, an endless device, or a
//! link to a file of the user. Reading must neither block nor exhaust memory, and must not follow links of a workspace.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use capstan_agent::paths::PathBounds;
use rustix::fs::{Mode, OFlags};

use super::ConfigError;

/// Maximum size of a configuration file.
const MAX_CONFIG_FILE_BYTES: u64 = 1 << 20;
/// Permission bits by which group and others may write.
const SHARED_WRITE_BITS: u32 = 0o022;
/// Open flags: do not block on a pipe, do not acquire a controlling terminal, do not leak to child processes.
const CONFIG_OPEN_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Text of a file of the home, or `None` if it does not exist. Follows links, because the home belongs to the user.
pub(crate) fn read_home_file(path: &Path) -> Result<Option<String>, ConfigError> {
    let opened = rustix::fs::open(path, CONFIG_OPEN_FLAGS, Mode::empty()).map_err(std::io::Error::from);
    let file = opened.map(File::from).and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    match file {
        Ok((file, metadata)) if metadata.is_file() => {
            check_access(path, &metadata)?;
            read_text(path, file).map(Some)
        }
        Ok((_, metadata)) if metadata.is_dir() => Err(unusable_file_error(path, "it is a directory")),
        Ok(_) => Err(unusable_file_error(path, "it is not a regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable_error(path, &error)),
    }
}

/// Refuses a home, or a file in it, that another user controls: its settings decide where keys are sent. Root controls
/// everything anyway.
pub(super) fn check_access(path: &Path, metadata: &Metadata) -> Result<(), ConfigError> {
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o777);
    let path = || path.display().to_string();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(ConfigError::ForeignOwner { path: path(), owner });
    }
    if mode & SHARED_WRITE_BITS != 0 {
        return Err(ConfigError::SharedWrite { path: path(), mode });
    }
    Ok(())
}

/// Text of a file of the workspace, or `None` if it does not exist. Does not follow links that lead out of the workspace,
/// because its author may not be the user.
pub(super) fn read_workspace_file(workspace: &Path, name: &str) -> Result<Option<String>, ConfigError> {
    let path = workspace.join(name);
    match path.symlink_metadata() {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable_error(&path, &error)),
    }
    match PathBounds::default().open(workspace, name) {
        Ok(file) => read_text(&path, file).map(Some),
        // An error of the system, not of the path bounds.
        Err(error) if error.raw_os_error().is_some() => Err(unreadable_error(&path, &error)),
        Err(error) => Err(unusable_file_error(&path, &error.to_string())),
    }
}

fn read_text(path: &Path, file: File) -> Result<String, ConfigError> {
    let mut bytes = Vec::new();
    file.take(MAX_CONFIG_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable_error(path, &error))?;
    if bytes.len() as u64 > MAX_CONFIG_FILE_BYTES {
        return Err(unusable_file_error(path, &format!("it is larger than {MAX_CONFIG_FILE_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| {
        let detail = "not UTF-8".to_owned();
        ConfigError::Malformed { path: path.display().to_string(), detail }
    })
}

fn unusable_file_error(path: &Path, reason: &str) -> ConfigError {
    ConfigError::UnusableFile { path: path.display().to_string(), reason: reason.to_owned() }
}

fn unreadable_error(path: &Path, error: &std::io::Error) -> ConfigError {
    ConfigError::Unreadable { path: path.display().to_string(), detail: error.to_string() }
}
