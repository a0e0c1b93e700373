//! Skills: instruction files that a model loads when it needs them.
//!
//! A skill is a folder with a `SKILL.md`. Skills of the workspace take precedence over the user's, and those over the
//! built-in ones; of two skills with the same name the first is used. Skills of a workspace are read only if the user
//! trusts it, and even then sizes and counts are bounded, names are validated, and symbolic links must not leave it.

mod discovery;
mod front_matter;

use std::path::PathBuf;

pub use discovery::{ShadowedSkill, SkillCatalog, SkillDirs};

/// Valid skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Unique name.
    pub name: String,
    /// Purpose, as listed in the system prompt.
    pub description: String,
    /// Instructions.
    pub body: String,
    /// Source of the skill.
    pub origin: SkillOrigin,
    /// Folder with the skill's files; built-in skills have none.
    pub folder: Option<PathBuf>,
}

/// Source of a skill, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkillOrigin {
    /// Workspace of the turn.
    Workspace,
    /// User's own skills folder.
    User,
    /// Shipped with Capstan.
    BuiltIn,
}

impl SkillOrigin {
    /// Returns the name used in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::User => "user",
            Self::BuiltIn => "built-in",
        }
    }
}

/// Skill folder that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSkill {
    /// Path of its `SKILL.md`.
    pub path: PathBuf,
    /// Source of the skill.
    pub origin: SkillOrigin,
    /// Reason for rejecting it.
    pub reason: String,
}

impl Skill {
    /// Renders the instructions for a model, with the skill's name and folder.
    pub(crate) fn instructions(&self) -> String {
        let folder = match &self.folder {
            Some(folder) => format!(" folder=\"{}\"", folder.display()),
            None => String::new(),
        };
        format!("<skill name=\"{}\"{folder}>\n{}\n</skill>", self.name, self.body.trim())
    }
}

#[cfg(test)]
mod tests;
