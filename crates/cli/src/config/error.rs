//! What is wrong with a configuration.

use std::path::Path;

use capstan_protocol::CodedError;

const UNREADABLE_FILE_HINT: &str =
    "give this user read access to the file and its directory, or use another workspace or home";
const UNUSABLE_FILE_HINT: &str =
    "replace it by a regular file of at most 1 MiB, or remove it; a link in a workspace must stay inside it";
const WORKSPACE_FILE_HINT: &str = "the file belongs to the workspace, which an agent can modify: correct or remove it";

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, CodedError)]
pub enum ConfigError {
    /// There is nowhere to keep things.
    #[error("neither CAPSTAN_HOME nor HOME is set")]
    #[code(HomeUnusable)]
    NoHome,
    /// What should be the home is something else.
    #[error("the home {path} is not a directory")]
    #[code(HomeUnusable)]
    HomeNotDirectory {
        /// What is there.
        path: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {detail}")]
    #[code(ConfigInvalid, hint = Some(UNREADABLE_FILE_HINT))]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        detail: String,
    },
    /// What lies where a file should is not to be read.
    #[error("{path} is not read: {reason}")]
    #[code(ConfigInvalid, hint = Some(UNUSABLE_FILE_HINT))]
    UnusableFile {
        /// The file.
        path: String,
        /// What it is.
        reason: String,
    },
    /// A file is not what it should be.
    #[error("{path} is not valid: {detail}")]
    #[code(ConfigInvalid, hint = self.workspace_file_hint())]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong, with its line.
        detail: String,
    },
    /// A file sets something that does not exist.
    #[error("{path} sets {key:?}, which does not exist{}", format_suggestion(.nearest.as_deref()))]
    #[code(ConfigInvalid, hint = self.workspace_file_hint())]
    UnknownKey {
        /// The file or variable.
        path: String,
        /// The name.
        key: String,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// A value makes no sense.
    #[error("{key} has the value {value:?} (from {origin}), which is not valid: {reason}")]
    #[code(ConfigInvalid)]
    Invalid {
        /// The setting.
        key: String,
        /// Its value, masked where it is a secret.
        value: String,
        /// Where it came from.
        origin: String,
        /// What is wrong.
        reason: String,
    },
    /// A workspace sets what only its user may.
    #[error("{origin} sets {key}, which a workspace may not: whoever can write there would decide who works as you")]
    #[code(ConfigUntrusted)]
    Untrusted {
        /// The setting.
        key: String,
        /// The file of the workspace.
        origin: String,
    },
    /// A workspace sets more than its user has.
    #[error("{origin} sets {key} to {value}, and a workspace may only lower it: it is {limit}")]
    #[code(ConfigUntrusted)]
    LimitRaised {
        /// The setting.
        key: String,
        /// What the workspace sets.
        value: String,
        /// The file of the workspace.
        origin: String,
        /// What the user has.
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
        Self::Invalid { key, value: String::new(), origin: "default".to_owned(), reason: "it is not set".to_owned() }
    }
}
