//! Settings of the agent's tools and prompts.

use std::path::{Path, PathBuf};

use capstan_agent::skills::SkillDirs;
use capstan_agent::tools::web::{self, AllowedHost, HostParseError};

use super::ConfigError;
use super::layer::ConfigLayers;

/// Configuration of the agent's tools and prompts.
#[derive(Debug, Clone)]
pub struct ToolConfig {
    /// Files and folders outside the workspace that the file tools may access.
    pub allow_paths: Vec<PathBuf>,
    /// Additional environment variables passed to commands.
    pub bash_environment: Vec<String>,
    /// Options of the web tools.
    pub web: web::WebOptions,
    /// Directories of skills outside the workspace.
    pub skills: SkillDirs,
    /// Add origin and time of each message to the prompt.
    pub message_context: bool,
}

impl ToolConfig {
    /// Loads the configuration; `~` is the user's home directory.
    pub(super) fn load(layers: &ConfigLayers, user: Option<&Path>) -> Result<Self, ConfigError> {
        Ok(Self {
            allow_paths: absolute_paths(layers, "allow_paths", user)?,
            bash_environment: comma_separated(layers, "bash_environment"),
            web: web::WebOptions { allow_private: allowed_private_hosts(layers)?, proxy: web_proxy(layers)? },
            skills: SkillDirs { user: user.map(Path::to_owned), ..SkillDirs::default() },
            message_context: layers.required("message_context")?,
        })
    }
}

/// Elements of a list, which layers store separated by commas.
pub(super) fn comma_separated(layers: &ConfigLayers, key: &str) -> Vec<String> {
    let text = layers.text(key).unwrap_or_default();
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
}

fn absolute_paths(layers: &ConfigLayers, key: &str, user: Option<&Path>) -> Result<Vec<PathBuf>, ConfigError> {
    let invalid = || layers.invalid_error(key, "each path must start with / or ~/");
    comma_separated(layers, key).into_iter().map(|text| expand_path(text, user).ok_or_else(invalid)).collect()
}

/// An absolute path; `~` is the user's home directory.
pub(super) fn expand_path(text: String, user: Option<&Path>) -> Option<PathBuf> {
    match (text.strip_prefix('~'), user) {
        (Some(rest), Some(user)) if rest.is_empty() || rest.starts_with('/') => {
            Some(user.join(rest.trim_start_matches('/')))
        }
        _ => Path::new(&text).is_absolute().then(|| PathBuf::from(text)),
    }
}

fn allowed_private_hosts(layers: &ConfigLayers) -> Result<Vec<AllowedHost>, ConfigError> {
    let key = "web_allow_private";
    let parse =
        |entry: String| entry.parse().map_err(|error: HostParseError| layers.invalid_error(key, &error.to_string()));
    comma_separated(layers, key).into_iter().map(parse).collect()
}

fn web_proxy(layers: &ConfigLayers) -> Result<Option<String>, ConfigError> {
    let key = "web_proxy";
    match layers.text(key) {
        Some(proxy) if proxy.strip_prefix("http://").is_none_or(str::is_empty) => {
            Err(layers.invalid_error(key, "must be a URL such as http://127.0.0.1:3128"))
        }
        proxy => Ok(proxy),
    }
}
