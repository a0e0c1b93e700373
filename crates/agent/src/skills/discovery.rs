//! Discovery of skills in the workspace, the user's folder and the built-in set.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::front_matter;
use super::{InvalidSkill, Skill, SkillOrigin};
use crate::paths::PathBounds;

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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillDirs {
    /// User's own folder.
    pub user: Option<PathBuf>,
}

/// Result of a search for skills.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillCatalog {
    /// Valid skills, sorted by name.
    pub skills: Vec<Skill>,
    /// Folders that should hold a skill but are invalid.
    pub invalid: Vec<InvalidSkill>,
}

impl SkillCatalog {
    /// Looks up a skill by name.
    pub fn skill(&self, name: &str) -> Option<&Skill> {
        self.skills.iter().find(|skill| skill.name == name)
    }
}

impl SkillDirs {
    /// Finds all skills.
    pub fn find(&self, workspace: &Path) -> SkillCatalog {
        let mut skills: BTreeMap<String, Skill> = BTreeMap::new();
        let mut invalid = Vec::new();
        let user = self.user.as_deref().map(|user| (SkillOrigin::User, user));
        for (origin, root) in [(SkillOrigin::Workspace, workspace)].into_iter().chain(user) {
            for file in skill_files(root) {
                match read_skill(origin, root, &file) {
                    Ok(skill) => {
                        skills.entry(skill.name.clone()).or_insert(skill);
                    }
                    Err(reason) => invalid.push(InvalidSkill { path: file, origin, reason }),
                }
            }
        }
        for text in BUILT_IN_SKILLS {
            if let Ok(skill) = parse_skill(SkillOrigin::BuiltIn, None, text) {
                skills.entry(skill.name.clone()).or_insert(skill);
            }
        }
        SkillCatalog { skills: skills.into_values().collect(), invalid }
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

fn read_skill(origin: SkillOrigin, root: &Path, path: &Path) -> Result<Skill, String> {
    let file = match origin {
        // An untrusted workspace may contain a link to a private file of the user.
        SkillOrigin::Workspace => {
            let inside = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
            PathBounds::default().open(root, &inside).map_err(|error| error.to_string())?
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
