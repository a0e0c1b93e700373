//! Skills: instructions that are read when they are needed.
//!
//! A skill is a folder with a `SKILL.md`. Those of the workspace come first, then the user's own, then the built-in
//! ones; of two with the same name the first is used. What a workspace holds is nobody's word: sizes and numbers are
//! bounded, names are checked, and no link leads out of it.

mod discovery;
mod front_matter;

use std::path::PathBuf;

pub use discovery::{SkillCatalog, SkillDirs};

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The instructions.
    pub body: String,
    /// Whose it is.
    pub origin: SkillOrigin,
    /// Where its files are; a built-in one has none.
    pub folder: Option<PathBuf>,
}

/// Whose a skill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkillOrigin {
    /// The workspace's.
    Workspace,
    /// The user's.
    User,
    /// It comes with Capstan.
    BuiltIn,
}

impl SkillOrigin {
    /// The origin as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::User => "user",
            Self::BuiltIn => "built-in",
        }
    }
}

/// A folder that should be a skill and is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSkill {
    /// The file.
    pub path: PathBuf,
    /// Whose it is.
    pub origin: SkillOrigin,
    /// What is wrong with it.
    pub reason: String,
}

impl Skill {
    /// The instructions with where they came from, as they are given to a model.
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
