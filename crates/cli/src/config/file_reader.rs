//! Reading files of settings. What lies there under their names may be anything: a pipe that nobody writes to, a device
//! without an end, a link to something of the user's. Every command reads them first, and must not wait or run out of memory.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use capstan_agent::paths::PathBounds;
use rustix::fs::{Mode, OFlags};

use super::ConfigError;

/// The largest file of settings.
const MAX_CONFIG_FILE_BYTES: u64 = 1 << 20;
/// What a file is opened with: never waited for, never a terminal of ours, not passed on to commands.
const CONFIG_OPEN_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// The text of a file of the home; nothing where there is none. Links are followed: the home is the user's.
pub(crate) fn read_home_file(path: &Path) -> Result<Option<String>, ConfigError> {
    let opened = rustix::fs::open(path, CONFIG_OPEN_FLAGS, Mode::empty()).map_err(std::io::Error::from);
    let found = opened.map(File::from).and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    match found {
        Ok((file, metadata)) if metadata.is_file() => read_text(path, file).map(Some),
        Ok((_, metadata)) if metadata.is_dir() => Err(unusable_file_error(path, "it is a folder")),
        Ok(_) => Err(unusable_file_error(path, "it is not a regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable_error(path, &error)),
    }
}

/// The text of a file of a workspace; nothing where there is none. Whoever made the workspace may have put a link there: one
/// that leads elsewhere is not followed, as for everything that is read there unasked.
pub(super) fn read_workspace_file(workspace: &Path, name: &str) -> Result<Option<String>, ConfigError> {
    let path = workspace.join(name);
    match path.symlink_metadata() {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable_error(&path, &error)),
    }
    match PathBounds::default().open(workspace, name) {
        Ok(file) => read_text(&path, file).map(Some),
        // What the system said, and not the rules.
        Err(error) if error.raw_os_error().is_some() => Err(unreadable_error(&path, &error)),
        Err(error) => Err(unusable_file_error(&path, &error.to_string())),
    }
}

fn read_text(path: &Path, file: File) -> Result<String, ConfigError> {
    let mut bytes = Vec::new();
    file.take(MAX_CONFIG_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable_error(path, &error))?;
    if bytes.len() as u64 > MAX_CONFIG_FILE_BYTES {
        return Err(unusable_file_error(path, &format!("it has more than the {MAX_CONFIG_FILE_BYTES} bytes allowed")));
    }
    String::from_utf8(bytes).map_err(|_| {
        let detail = "it is not UTF-8".to_owned();
        ConfigError::Malformed { path: path.display().to_string(), detail }
    })
}

fn unusable_file_error(path: &Path, reason: &str) -> ConfigError {
    ConfigError::UnusableFile { path: path.display().to_string(), reason: reason.to_owned() }
}

fn unreadable_error(path: &Path, error: &std::io::Error) -> ConfigError {
    ConfigError::Unreadable { path: path.display().to_string(), detail: error.to_string() }
}
