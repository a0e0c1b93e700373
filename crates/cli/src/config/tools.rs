//! What the user sets for the agent's tools and prompts.

use std::path::{Path, PathBuf};

use capstan_agent::skills::Places;
use capstan_agent::tools::web::{self, Allowed, BadHost};

use super::ConfigError;
use super::layer::Layers;

/// What the user sets for the agent's tools and prompts.
#[derive(Debug, Clone)]
pub struct ToolConfig {
    /// Folders and files beside the workspace that the file tools may use.
    pub allow_paths: Vec<PathBuf>,
    /// Variables of the environment that commands get beside the usual ones.
    pub bash_environment: Vec<String>,
    /// The web.
    pub web: web::Settings,
    /// Where skills are looked for beside the workspace.
    pub skills: Places,
    /// Whether a message says where it came from and when.
    pub message_context: bool,
}

impl ToolConfig {
    /// What the layers say; `~` is the user's own folder.
    pub(super) fn load(layers: &Layers, user: Option<&Path>) -> Result<Self, ConfigError> {
        Ok(Self {
            allow_paths: paths(layers, "allow_paths", user)?,
            bash_environment: list(layers, "bash_environment"),
            web: web::Settings { allow_private: allowed(layers)?, proxy: proxy(layers)? },
            skills: Places { user: user.map(Path::to_owned) },
            message_context: layers.required("message_context")?,
        })
    }
}

/// The entries of a list: a list in a file, separated by commas elsewhere.
fn list(layers: &Layers, key: &str) -> Vec<String> {
    let text = layers.text(key).unwrap_or_default();
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
}

fn paths(layers: &Layers, key: &str, user: Option<&Path>) -> Result<Vec<PathBuf>, ConfigError> {
    let refused = || layers.invalid(key, "each path must begin with / or ~/");
    list(layers, key).into_iter().map(|text| path(text, user).ok_or_else(refused)).collect()
}

/// A whole path; `~` is the user's own folder.
pub(super) fn path(text: String, user: Option<&Path>) -> Option<PathBuf> {
    match (text.strip_prefix('~'), user) {
        (Some(rest), Some(user)) if rest.is_empty() || rest.starts_with('/') => {
            Some(user.join(rest.trim_start_matches('/')))
        }
        _ => Path::new(&text).is_absolute().then(|| PathBuf::from(text)),
    }
}

fn allowed(layers: &Layers) -> Result<Vec<Allowed>, ConfigError> {
    let key = "web_allow_private";
    let parse = |entry: String| entry.parse().map_err(|error: BadHost| layers.invalid(key, &error.to_string()));
    list(layers, key).into_iter().map(parse).collect()
}

fn proxy(layers: &Layers) -> Result<Option<String>, ConfigError> {
    let key = "web_proxy";
    match layers.text(key) {
        Some(proxy) if proxy.strip_prefix("http://").is_none_or(str::is_empty) => {
            Err(layers.invalid(key, "it must be an address such as http://127.0.0.1:3128"))
        }
        proxy => Ok(proxy),
    }
}
