//! Error of a manifest that cannot be used.

use crate::{CodedError, ErrorCode};

/// Reason why a manifest cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", path_prefix(path))]
pub struct ManifestError {
    /// Path of the key, such as `tools[1].effect`; empty for the manifest as a whole.
    pub path: String,
    /// Description of the problem.
    pub reason: String,
    /// Advice to the author of the plugin.
    pub hint: &'static str,
}

fn path_prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

impl ManifestError {
    /// Error at a key.
    pub fn new(path: impl Into<String>, reason: impl Into<String>, hint: &'static str) -> Self {
        Self { path: path.into(), reason: reason.into(), hint }
    }
}

impl CodedError for ManifestError {
    type Code = ErrorCode;

    fn code(&self) -> ErrorCode {
        ErrorCode::PluginInvalid
    }

    fn hint(&self) -> Option<&'static str> {
        Some(self.hint)
    }
}
