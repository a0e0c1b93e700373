//! Configuration errors.

use std::path::Path;

use capstan_protocol::CodedError;

const UNREADABLE_FILE_HINT: &str =
    "give this user read access to the file and its directory, or use another workspace or home";
const FOREIGN_OWNER_HINT: &str = "set CAPSTAN_HOME to a directory of your own, or make this user its owner with chown";
const UNUSABLE_FILE_HINT: &str =
    "replace it by a regular file of at most 1 MiB, or remove it; a link in a workspace must stay inside it";
const WORKSPACE_FILE_HINT: &str = "the file belongs to the workspace, which an agent can modify: correct or remove it";

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
pub enum ConfigError {
    /// No home directory is known.
    #[error("neither CAPSTAN_HOME nor HOME is set")]
    #[code(HomeUnusable)]
    NoHome,
    /// The home exists and is not a directory.
    #[error("the home {path} is not a directory")]
    #[code(HomeUnusable)]
    HomeNotDirectory {
        /// Path of the home.
        path: String,
    },
    /// The home or a file in it belongs to another user.
    #[error("refused to use {path}: it belongs to user {owner}, who could read or change what you do with it")]
    #[code(HomeInsecure, hint = Some(FOREIGN_OWNER_HINT))]
    ForeignOwner {
        /// Path of the home or the file.
        path: String,
        /// Numeric id of its owner.
        owner: u32,
    },
    /// Other users may write the home or a file in it.
    #[error("refused to use {path}: other users may write it (mode {mode:03o})")]
    #[code(HomeInsecure)]
    SharedWrite {
        /// Path of the home or the file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {detail}")]
    #[code(ConfigInvalid, hint = Some(UNREADABLE_FILE_HINT))]
    Unreadable {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        detail: String,
    },
    /// A file is of a kind or size that is refused.
    #[error("refused to read {path}: {reason}")]
    #[code(ConfigInvalid, hint = Some(UNUSABLE_FILE_HINT))]
    UnusableFile {
        /// Path of the file.
        path: String,
        /// Kind or size of the file.
        reason: String,
    },
    /// A file cannot be parsed.
    #[error("{path} is not valid: {detail}")]
    #[code(ConfigInvalid, hint = self.workspace_file_hint())]
    Malformed {
        /// Path of the file.
        path: String,
        /// Parse error, with its line.
        detail: String,
    },
    /// A file sets an unknown key.
    #[error("{path} sets an unknown key {key:?}{}", format_suggestion(.nearest.as_deref()))]
    #[code(ConfigInvalid, hint = self.workspace_file_hint())]
    UnknownKey {
        /// File or variable.
        path: String,
        /// The unknown key.
        key: String,
        /// Closest known key.
        nearest: Option<String>,
    },
    /// A value is not valid.
    #[error("invalid value {value:?} of {key} (from {origin}): {reason}")]
    #[code(ConfigInvalid)]
    Invalid {
        /// Key of the setting.
        key: String,
        /// Value, masked if secret.
        value: String,
        /// Origin of the value.
        origin: String,
        /// Requirement that the value violates.
        reason: String,
    },
    /// An untrusted workspace sets a key reserved to the user.
    #[error("{origin} sets {key}, which only the user may set: the workspace would control who acts as you")]
    #[code(ConfigUntrusted)]
    Untrusted {
        /// Key of the setting.
        key: String,
        /// File of the workspace.
        origin: String,
    },
    /// An untrusted workspace raises a limit of the user.
    #[error("{origin} sets {key} to {value}, but a workspace may only lower it: the limit is {limit}")]
    #[code(ConfigUntrusted)]
    LimitRaised {
        /// Key of the setting.
        key: String,
        /// Value in the workspace.
        value: String,
        /// File of the workspace.
        origin: String,
        /// Limit of the user.
        limit: String,
    },
}

pub(super) fn format_suggestion(nearest: Option<&str>) -> String {
    nearest.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default()
}

impl ConfigError {
    /// Hint for a file of a workspace; none for the user's own files.
    fn workspace_file_hint(&self) -> Option<&'static str> {
        let (Self::Malformed { path, .. } | Self::UnknownKey { path, .. }) = self else { return None };
        let name = Path::new(path).file_name()?;
        (name == "capstan.toml" || name == ".env").then_some(WORKSPACE_FILE_HINT)
    }

    pub(crate) fn missing(key: &str) -> Self {
        let key = key.to_owned();
        Self::Invalid { key, value: String::new(), origin: "default".to_owned(), reason: "must be set".to_owned() }
    }
}
