//! Installed plugins: their folders under the home.

use std::fs;
use std::path::{Path, PathBuf};

use capstan_protocol::plugin_protocol::PluginManifest;
use serde::{Deserialize, Serialize};

use crate::{PluginError, read_manifest};

/// Folder of the installed plugins, in the home.
const PLUGINS_FOLDER: &str = "plugins";
/// Folder of the data of plugins, in the home. It survives upgrades.
const DATA_FOLDER: &str = "plugin-data";
/// File of the host in the folder of an installed plugin.
const RECORD_FILE: &str = ".capstan-install.toml";
/// Prefix of folders that are being written.
const STAGING_PREFIX: &str = ".new-";
/// Maximum number of files of a plugin.
const MAX_FILES: usize = 20_000;

/// Record of an installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallRecord {
    /// The plugin is registered when a host starts.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Path that it was installed from.
    #[serde(default)]
    pub source: String,
}

fn yes() -> bool {
    true
}

impl Default for InstallRecord {
    fn default() -> Self {
        Self { enabled: true, source: String::new() }
    }
}

/// Folder of an installed plugin.
#[derive(Debug)]
pub struct PluginFolder {
    /// Name of the folder, which is that of the plugin.
    pub name: String,
    /// Path of the folder.
    pub path: PathBuf,
    /// Data folder, which may not exist yet.
    pub data_dir: PathBuf,
    /// Record of the installation.
    pub record: InstallRecord,
    /// Manifest, or the reason why it cannot be used.
    pub manifest: Result<PluginManifest, PluginError>,
}

/// Installed plugins of a home.
#[derive(Debug, Clone)]
pub struct PluginHome {
    home: PathBuf,
}

impl PluginHome {
    /// Plugins of this home.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self { home: home.into() }
    }

    fn plugins_dir(&self) -> PathBuf {
        self.home.join(PLUGINS_FOLDER)
    }

    /// Installed plugins, by name. Nothing is started.
    pub fn plugins(&self) -> Vec<PluginFolder> {
        let entries = fs::read_dir(self.plugins_dir()).into_iter().flatten().flatten();
        let is_plugin = |entry: &fs::DirEntry| entry.path().is_dir();
        let names = entries.filter(is_plugin).filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names.iter().map(|name| self.read_folder(name)).collect()
    }

    /// Installed plugin with this name.
    pub fn plugin(&self, name: &str) -> Result<PluginFolder, PluginError> {
        // A name may come from a user: it must not lead elsewhere.
        let found = self.plugins().into_iter().find(|plugin| plugin.name == name);
        found.ok_or_else(|| PluginError::Unknown { name: name.to_owned() })
    }

    fn read_folder(&self, name: &str) -> PluginFolder {
        let path = self.plugins_dir().join(name);
        let record = fs::read_to_string(path.join(RECORD_FILE)).ok();
        let record = record.and_then(|text| toml::from_str(&text).ok()).unwrap_or_default();
        let manifest = read_manifest(&path).and_then(|manifest| {
            if manifest.name() == name {
                return Ok(manifest);
            }
            let reason = format!("its manifest names the plugin {}, its folder is {name}", manifest.name());
            Err(PluginError::failed(name, reason))
        });
        PluginFolder { name: name.to_owned(), path, data_dir: self.home.join(DATA_FOLDER).join(name), record, manifest }
    }

    /// Copies the plugin in a folder into the home, replacing an installed one with the same name. Its data stays.
    pub fn install(&self, source: &Path) -> Result<PluginFolder, PluginError> {
        let source = source.canonicalize().map_err(|error| PluginError::folder(source, error))?;
        let manifest = read_manifest(&source)?;
        let (name, plugins) = (manifest.name().to_owned(), self.plugins_dir());
        fs::create_dir_all(&plugins).map_err(|error| PluginError::folder(&plugins, error))?;
        let (staging, target) = (plugins.join(format!("{STAGING_PREFIX}{name}")), plugins.join(&name));
        let replaced = plugins.join(format!("{STAGING_PREFIX}{name}.old"));
        for leftover in [&staging, &replaced] {
            remove_folder(leftover)?;
        }
        let enabled = self.plugin(&name).map_or(true, |present| present.record.enabled);
        let mut files = 0;
        copy_folder(&source, &staging, &mut files)?;
        write_record(&staging, &InstallRecord { enabled, source: source.display().to_string() })?;
        if target.exists() {
            fs::rename(&target, &replaced).map_err(|error| PluginError::folder(&target, error))?;
        }
        fs::rename(&staging, &target).map_err(|error| PluginError::folder(&target, error))?;
        remove_folder(&replaced)?;
        self.plugin(&name)
    }

    /// Enables or disables a plugin. Returns true if that is a change.
    pub fn set_enabled(&self, name: &str, enabled: bool) -> Result<bool, PluginError> {
        let plugin = self.plugin(name)?;
        if plugin.record.enabled == enabled {
            return Ok(false);
        }
        write_record(&plugin.path, &InstallRecord { enabled, ..plugin.record })?;
        Ok(true)
    }

    /// Removes a plugin, with its data if asked for.
    pub fn remove(&self, name: &str, with_data: bool) -> Result<(), PluginError> {
        let plugin = self.plugin(name)?;
        remove_folder(&plugin.path)?;
        if with_data { remove_folder(&plugin.data_dir) } else { Ok(()) }
    }
}

fn write_record(folder: &Path, record: &InstallRecord) -> Result<(), PluginError> {
    let path = folder.join(RECORD_FILE);
    let text = toml::to_string(record).map_err(|error| PluginError::folder(&path, error))?;
    let staging = folder.join(format!("{RECORD_FILE}.new"));
    fs::write(&staging, text).map_err(|error| PluginError::folder(&staging, error))?;
    fs::rename(&staging, &path).map_err(|error| PluginError::folder(&path, error))
}

fn remove_folder(path: &Path) -> Result<(), PluginError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(PluginError::folder(path, error)),
        _ => Ok(()),
    }
}

/// Copies files and folders. Links are refused: they could lead out of the plugin. Version control and caches are left
/// out.
fn copy_folder(source: &Path, target: &Path, files: &mut usize) -> Result<(), PluginError> {
    const LEFT_OUT: [&str; 5] = [".git", "__pycache__", ".venv", "node_modules", RECORD_FILE];
    fs::create_dir_all(target).map_err(|error| PluginError::folder(target, error))?;
    let entries = fs::read_dir(source).map_err(|error| PluginError::folder(source, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| PluginError::folder(source, error))?;
        let (from, name) = (entry.path(), entry.file_name());
        if LEFT_OUT.iter().any(|left_out| name.to_str() == Some(left_out)) {
            continue;
        }
        *files += 1;
        if *files > MAX_FILES {
            return Err(PluginError::folder(source, format!("more than {MAX_FILES} files")));
        }
        let kind = entry.file_type().map_err(|error| PluginError::folder(&from, error))?;
        if kind.is_dir() {
            copy_folder(&from, &target.join(name), files)?;
        } else if kind.is_file() {
            fs::copy(&from, target.join(name)).map_err(|error| PluginError::folder(&from, error))?;
        } else {
            return Err(PluginError::folder(&from, "neither a file nor a folder, so the plugin is not installed"));
        }
    }
    Ok(())
}
