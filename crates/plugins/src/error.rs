//! Errors of plugin processes.

use capstan_protocol::CodedError;
use capstan_protocol::plugin_protocol::ManifestError;
use capstan_rpc::{RpcCallError, RpcError};

/// Failure of a plugin, with its id.
#[derive(Debug, Clone, PartialEq, thiserror::Error, CodedError)]
pub enum PluginError {
    /// The manifest cannot be used.
    #[error("the plugin in {folder} cannot be used: {error}")]
    #[code(PluginInvalid, hint = self.manifest_hint())]
    Invalid {
        /// Folder of the plugin.
        folder: String,
        /// Reason, with the path of the key.
        error: ManifestError,
    },
    /// No plugin with this name is installed.
    #[error("no plugin {name:?} is installed")]
    #[code(PluginUnknown)]
    Unknown {
        /// The name.
        name: String,
    },
    /// The process failed, or does not implement its manifest.
    #[error("the plugin {plugin} failed: {reason}")]
    #[code(PluginFailed)]
    Failed {
        /// Id of the plugin.
        plugin: String,
        /// Description of the failure.
        reason: String,
    },
    /// A folder cannot be read or written.
    #[error("{path}: {reason}")]
    #[code(PluginFailed)]
    Folder {
        /// Path of the file or folder.
        path: String,
        /// Description of the failure.
        reason: String,
    },
}

impl PluginError {
    fn manifest_hint(&self) -> Option<&'static str> {
        match self {
            Self::Invalid { error, .. } => Some(error.hint),
            _ => None,
        }
    }

    /// Failure of a plugin.
    pub fn failed(plugin: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Failed { plugin: plugin.into(), reason: reason.into() }
    }

    pub(crate) fn folder(path: &std::path::Path, reason: impl std::fmt::Display) -> Self {
        Self::Folder { path: path.display().to_string(), reason: reason.to_string() }
    }
}

/// Message of a failed call for people and models: that of the plugin where it answered with one.
pub(crate) fn call_message(error: &RpcCallError) -> String {
    match error {
        RpcCallError::Remote(RpcError { message, .. }) => message.clone(),
        other => other.to_string(),
    }
}
