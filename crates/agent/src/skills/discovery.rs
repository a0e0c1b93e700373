//! Discovery of skills in the workspace, the user's folder and the built-in set.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::front_matter;
use super::{InvalidSkill, Skill, SkillOrigin};
use crate::instruction_rules::InstructionRules;

/// Skills folder, relative to the workspace and to the user's folder.
const SKILLS_DIR: &str = ".agents/skills";
/// File that defines a skill.
const SKILL_FILE_NAME: &str = "SKILL.md";
/// Maximum number of entries read from one skills folder.
const MAX_SKILLS_PER_DIR: usize = 200;
/// Maximum size of a skill file.
const MAX_SKILL_FILE_BYTES: u64 = 64 * 1024;
/// Built-in skill files.
const BUILT_IN_SKILLS: &[&str] = &[include_str!("skill-creator/SKILL.md")];

/// Directories searched for skills in addition to the workspace.
#[derive(Debug, Clone, Default)]
pub struct SkillDirs {
    /// User's own folder.
    pub user: Option<PathBuf>,
    /// Rules for the skills of the workspace.
    pub rules: InstructionRules,
}

/// Skill that is not used because another one of the same name takes precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowedSkill {
    /// Name of both skills.
    pub name: String,
    /// Source of the skill that is not used.
    pub origin: SkillOrigin,
    /// Source of the skill that is used.
    pub used: SkillOrigin,
}

impl std::fmt::Display for ShadowedSkill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (origin, used) = (self.origin.as_str(), self.used.as_str());
        write!(f, "the {used} skill {} replaces the {origin} skill of that name", self.name)
    }
}

/// Result of a search for skills.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillCatalog {
    /// Valid skills, sorted by name.
    pub skills: Vec<Skill>,
    /// Folders that should hold a skill but are invalid.
    pub invalid: Vec<InvalidSkill>,
    /// Valid skills that are not used because of another one of the same name.
    pub shadowed: Vec<ShadowedSkill>,
}

impl SkillCatalog {
    /// Looks up a skill by name.
    pub fn skill(&self, name: &str) -> Option<&Skill> {
        self.skills.iter().find(|skill| skill.name == name)
    }

    /// Adds a skill, unless one of the same name takes precedence.
    fn add(&mut self, skill: Skill) {
        match self.skill(&skill.name).map(|used| used.origin) {
            Some(used) => self.shadowed.push(ShadowedSkill { name: skill.name, origin: skill.origin, used }),
            None => self.skills.push(skill),
        }
    }
}

impl SkillDirs {
    /// Finds the skills that the agent may use: those of the workspace only if it is trusted.
    pub fn find(&self, workspace: &Path) -> SkillCatalog {
        let mut catalog = SkillCatalog::default();
        // In the user's own folder every skill is the user's.
        if self.rules.is_trusted() && !self.is_user_dir(workspace) {
            self.add_skills(&mut catalog, SkillOrigin::Workspace, workspace);
        }
        if let Some(user) = &self.user {
            self.add_skills(&mut catalog, SkillOrigin::User, user);
        }
        for text in BUILT_IN_SKILLS {
            if let Ok(skill) = parse_skill(SkillOrigin::BuiltIn, None, text) {
                catalog.add(skill);
            }
        }
        catalog.skills.sort_by(|one, other| one.name.cmp(&other.name));
        catalog
    }

    /// Finds the skills of a workspace alone, for a user who decides about its trust.
    pub fn find_in_workspace(&self, workspace: &Path) -> SkillCatalog {
        let mut catalog = SkillCatalog::default();
        self.add_skills(&mut catalog, SkillOrigin::Workspace, workspace);
        catalog
    }

    /// Checks if a workspace is the user's own folder.
    pub fn is_user_dir(&self, workspace: &Path) -> bool {
        let user = self.user.as_deref().and_then(|user| user.canonicalize().ok());
        user.is_some() && user == workspace.canonicalize().ok()
    }

    fn add_skills(&self, catalog: &mut SkillCatalog, origin: SkillOrigin, root: &Path) {
        for file in skill_files(root) {
            match read_skill(&self.rules, origin, root, &file) {
                Ok(skill) => catalog.add(skill),
                Err(reason) => catalog.invalid.push(InvalidSkill { path: file, origin, reason }),
            }
        }
    }
}

/// Lists the files that should define a skill, sorted by name.
fn skill_files(root: &Path) -> Vec<PathBuf> {
    let folder = root.join(SKILLS_DIR);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let names = entries.take(MAX_SKILLS_PER_DIR).filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut names: Vec<_> = names.filter(|name| !name.to_string_lossy().starts_with('.')).collect();
    names.sort();
    names
        .into_iter()
        .map(|name| folder.join(name))
        .filter(|path| path.is_dir())
        .map(|path| path.join(SKILL_FILE_NAME))
        .collect()
}

fn read_skill(rules: &InstructionRules, origin: SkillOrigin, root: &Path, path: &Path) -> Result<Skill, String> {
    let file = match origin {
        // An untrusted workspace may contain a link to a private file of the user.
        SkillOrigin::Workspace => {
            let inside = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
            rules.bounds().open(root, &inside).map_err(|error| error.to_string())?
        }
        SkillOrigin::User | SkillOrigin::BuiltIn => {
            let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
            let file = if is_file { File::open(path) } else { Err(std::io::ErrorKind::NotFound.into()) };
            file.map_err(|error| error.to_string())?
        }
    };
    let mut text = String::new();
    file.take(MAX_SKILL_FILE_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_SKILL_FILE_BYTES {
        return Err(format!("the file is larger than the {MAX_SKILL_FILE_BYTES} bytes allowed"));
    }
    if origin == SkillOrigin::Workspace {
        rules.secrets.mask_text(&mut text);
    }
    let folder = path.parent().map(Path::to_owned);
    let name = folder.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let skill = parse_skill(origin, folder, &text)?;
    if skill.name != name {
        return Err(format!("the skill is named {:?}, but its folder {name:?}", skill.name));
    }
    Ok(skill)
}

fn parse_skill(origin: SkillOrigin, folder: Option<PathBuf>, text: &str) -> Result<Skill, String> {
    let front_matter::SkillManifest { name, description, body } = front_matter::parse(text)?;
    Ok(Skill { name, description, body, origin, folder })
}
