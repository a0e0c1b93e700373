use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{SkillDirs, SkillOrigin};

/// A workspace and a user's own folder.
struct SkillFixture {
    folder: tempfile::TempDir,
}

impl SkillFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["workspace", "user", "beside"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn with_skill(self, place: &str, folder: &str, text: &str) -> Self {
        let folder = self.path(place).join(".agents/skills").join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("SKILL.md"), text).unwrap();
        self
    }

    fn discover(&self) -> super::SkillCatalog {
        SkillDirs { user: Some(self.path("user")) }.find(&self.path("workspace"))
    }

    fn skill_names(&self) -> Vec<(String, SkillOrigin)> {
        self.discover().skills.into_iter().map(|skill| (skill.name, skill.origin)).collect()
    }
}

fn skill_text(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n")
}

#[test]
fn a05_skills_are_found_in_the_workspace_then_at_home_then_built_in() {
    let shelf = SkillFixture::new()
        .with_skill("user", "notes", &skill_text("notes", "the user's"))
        .with_skill("user", "both", &skill_text("both", "the user's"))
        .with_skill("workspace", "both", &skill_text("both", "the workspace's"))
        .with_skill("workspace", "skill-creator", &skill_text("skill-creator", "another one"));
    let expected =
        [("both", SkillOrigin::Workspace), ("notes", SkillOrigin::User), ("skill-creator", SkillOrigin::Workspace)];
    assert_eq!(shelf.skill_names(), expected.map(|(name, origin)| (name.to_owned(), origin)));
    assert_eq!(shelf.discover().skill("both").unwrap().description, "the workspace's");
}

#[test]
fn a05_the_built_in_skill_is_valid() {
    assert_eq!(SkillFixture::new().skill_names(), [("skill-creator".to_owned(), SkillOrigin::BuiltIn)]);
}

#[test]
fn a05_invalid_skills_are_reported_and_do_not_hurt_the_others() {
    let shelf = SkillFixture::new()
        .with_skill("workspace", "fine", &skill_text("fine", "fine"))
        .with_skill("workspace", "no-head", "Do it.")
        .with_skill("workspace", "other", &skill_text("another", "x"))
        .with_skill("workspace", "large", &(skill_text("large", "x") + &"x".repeat(70_000)));
    std::fs::create_dir(shelf.path("workspace/.agents/skills/empty")).unwrap();
    std::fs::write(shelf.path("workspace/.agents/skills/README.md"), "no skill").unwrap();
    let found = shelf.discover();
    assert!(found.skill("fine").is_some() && found.skills.len() == 2);
    let reasons: Vec<String> = found
        .invalid
        .iter()
        .map(|one| format!("{}: {}", one.path.parent().and_then(Path::file_name).unwrap().display(), one.reason))
        .collect();
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    for (reason, part) in
        reasons.iter().zip(["empty: ", "large: it has more", "no-head: it does not", "that of its folder"])
    {
        assert!(reason.contains(part), "{reason}");
    }
}

#[test]
fn x06_no_skill_of_a_workspace_leads_out_of_it() {
    let shelf = SkillFixture::new().with_skill("workspace", "fine", &skill_text("fine", "fine"));
    std::fs::write(shelf.path("beside/SKILL.md"), skill_text("leak", "a secret")).unwrap();
    std::fs::create_dir(shelf.path("workspace/.agents/skills/leak")).unwrap();
    let leak = shelf.path("workspace/.agents/skills/leak/SKILL.md");
    symlink(shelf.path("beside/SKILL.md"), leak).unwrap();
    symlink(shelf.path("beside"), shelf.path("workspace/.agents/skills/beside")).unwrap();
    let found = shelf.discover();
    assert!(found.skill("leak").is_none());
    assert_eq!(found.invalid.len(), 2);
    assert!(found.invalid.iter().all(|one| one.reason.contains("outside the workspace")), "{:?}", found.invalid);
    let elsewhere = SkillFixture::new();
    std::fs::create_dir(elsewhere.path("workspace/.agents")).unwrap();
    symlink(shelf.path("workspace/.agents/skills"), elsewhere.path("workspace/.agents/skills")).unwrap();
    assert!(elsewhere.discover().skill("fine").is_none());
}
