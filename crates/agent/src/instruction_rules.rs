//! Rules for the instructions and skills of a workspace, whose author may not be the user.

use std::path::PathBuf;

use capstan_hooks::SecretMasker;

use crate::paths::PathBounds;

/// Decision of the user about a workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WorkspaceTrust {
    /// The agent does not read the workspace's instructions and skills.
    #[default]
    Untrusted,
    /// The agent follows the workspace's instructions and skills.
    Trusted,
}

/// Rules for the files of a workspace that become part of a prompt: `AGENTS.md` and skills.
#[derive(Debug, Clone, Default)]
pub struct InstructionRules {
    /// Decision of the user about the workspace.
    pub trust: WorkspaceTrust,
    /// Directories that no link of the workspace may lead to, such as Capstan's own.
    pub denied: Vec<PathBuf>,
    /// Secrets that are masked in what is read.
    pub secrets: SecretMasker,
}

impl InstructionRules {
    /// Rules of a trusted workspace without denied directories and secrets.
    pub fn trusted() -> Self {
        Self { trust: WorkspaceTrust::Trusted, ..Self::default() }
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.trust == WorkspaceTrust::Trusted
    }

    pub(crate) fn bounds(&self) -> PathBounds {
        PathBounds { denied: self.denied.clone(), ..PathBounds::default() }
    }
}
