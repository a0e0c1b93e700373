//! What the user sets for the tools.

use std::path::{Path, PathBuf};

use super::ConfigError;
use super::layer::Layers;

/// What the user sets for the tools. Nothing of it can be set by a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolConfig {
    /// Folders and files beside the workspace that the file tools may use.
    pub allow_paths: Vec<PathBuf>,
    /// Variables of the environment that commands get beside the usual ones.
    pub bash_environment: Vec<String>,
}

impl ToolConfig {
    /// What the layers say; `~` is the user's own folder.
    pub(super) fn load(layers: &Layers, user: Option<&Path>) -> Result<Self, ConfigError> {
        Ok(Self {
            allow_paths: paths(layers, "allow_paths", user)?,
            bash_environment: list(layers, "bash_environment"),
        })
    }
}

/// The entries of a list: a list in a file, separated by commas elsewhere.
fn list(layers: &Layers, key: &str) -> Vec<String> {
    let text = layers.text(key).unwrap_or_default();
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
}

fn paths(layers: &Layers, key: &str, user: Option<&Path>) -> Result<Vec<PathBuf>, ConfigError> {
    let path = |text: String| match (text.strip_prefix('~'), user) {
        (Some(rest), Some(user)) if rest.is_empty() || rest.starts_with('/') => {
            Ok(user.join(rest.trim_start_matches('/')))
        }
        _ if Path::new(&text).is_absolute() => Ok(PathBuf::from(text)),
        _ => Err(layers.invalid(key, "each path must begin with / or ~/")),
    };
    list(layers, key).into_iter().map(path).collect()
}
