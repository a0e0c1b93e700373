//! The user's decisions about workspaces, stored in the home by resolved path.
//!
//! A trusted workspace may give instructions (`AGENTS.md`), provide skills (`.agents/skills`) and set every configuration
//! key. The setting `trust_workspace` trusts every workspace; the record trusts the ones that `capstan trust` names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{ConfigError, read_home_file};

/// File of the record in the home.
pub(crate) const TRUST_FILE: &str = "trust.json";
/// Files of a workspace that steer the agent.
const INSTRUCTION_PATHS: [&str; 2] = ["AGENTS.md", ".agents"];

/// Standing of a workspace with the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustDecision {
    /// Trusted by the setting `trust_workspace`, as every workspace is.
    BySetting,
    /// Trusted with `capstan trust`.
    ByRecord,
    /// Not trusted; the user was asked and declined.
    Declined,
    /// Not trusted; the user was not asked.
    Undecided,
}

impl TrustDecision {
    /// Checks if the workspace is trusted.
    pub fn is_trusted(self) -> bool {
        matches!(self, Self::BySetting | Self::ByRecord)
    }
}

/// Decisions about single workspaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrustRecord {
    /// Resolved paths of trusted workspaces.
    pub(crate) trusted: BTreeSet<PathBuf>,
    /// Resolved paths of workspaces that the user declined to trust.
    #[serde(default)]
    pub(crate) declined: BTreeSet<PathBuf>,
}

impl TrustRecord {
    /// Reads the record of a home; a home without one trusts no workspace.
    pub(crate) fn load(home: &Path) -> Result<Self, ConfigError> {
        let path = home.join(TRUST_FILE);
        let Some(text) = read_home_file(&path)? else { return Ok(Self::default()) };
        let malformed = |error: serde_json::Error| ConfigError::Malformed {
            path: path.display().to_string(),
            detail: error.to_string(),
        };
        serde_json::from_str(&text).map_err(malformed)
    }

    /// Decision about a workspace.
    pub(crate) fn decision(&self, workspace: &Path) -> TrustDecision {
        let resolved = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        match (self.trusted.contains(&resolved), self.declined.contains(&resolved)) {
            (true, _) => TrustDecision::ByRecord,
            (false, true) => TrustDecision::Declined,
            (false, false) => TrustDecision::Undecided,
        }
    }

    pub(crate) fn trust(&mut self, workspace: PathBuf) {
        self.declined.remove(&workspace);
        self.trusted.insert(workspace);
    }

    pub(crate) fn decline(&mut self, workspace: PathBuf) {
        self.trusted.remove(&workspace);
        self.declined.insert(workspace);
    }

    /// Removes the decision about a workspace; false if there was none.
    pub(crate) fn forget(&mut self, workspace: &Path) -> bool {
        let was_trusted = self.trusted.remove(workspace);
        self.declined.remove(workspace) || was_trusted
    }
}

/// Files in a workspace that the agent reads only if the workspace is trusted.
pub(crate) fn instruction_files(workspace: &Path) -> Vec<&'static str> {
    let exists = |path: &&str| workspace.join(path).symlink_metadata().is_ok();
    INSTRUCTION_PATHS.into_iter().filter(exists).collect()
}
