use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{SkillDirs, SkillOrigin};

/// Workspace, user folder and a folder outside both.
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

    fn with_skill(self, root: &str, folder: &str, text: &str) -> Self {
        let folder = self.path(root).join(".agents/skills").join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("SKILL.md"), text).unwrap();
        self
    }

    fn discover(&self) -> super::SkillCatalog {
        SkillDirs { user: Some(self.path("user")), rules: crate::InstructionRules::trusted() }
            .find(&self.path("workspace"))
    }

    fn skill_names(&self) -> Vec<(String, SkillOrigin)> {
        self.discover().skills.into_iter().map(|skill| (skill.name, skill.origin)).collect()
    }
}

fn skill_text(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n")
}

#[test]
fn a05_skills_come_from_workspace_then_user_then_built_in() {
    let fixture = SkillFixture::new()
        .with_skill("user", "notes", &skill_text("notes", "the user's"))
        .with_skill("user", "both", &skill_text("both", "the user's"))
        .with_skill("workspace", "both", &skill_text("both", "the workspace's"))
        .with_skill("workspace", "skill-creator", &skill_text("skill-creator", "another one"));
    let expected =
        [("both", SkillOrigin::Workspace), ("notes", SkillOrigin::User), ("skill-creator", SkillOrigin::Workspace)];
    assert_eq!(fixture.skill_names(), expected.map(|(name, origin)| (name.to_owned(), origin)));
    assert_eq!(fixture.discover().skill("both").unwrap().description, "the workspace's");
}

#[test]
fn a05_built_in_skill_is_valid() {
    assert_eq!(SkillFixture::new().skill_names(), [("skill-creator".to_owned(), SkillOrigin::BuiltIn)]);
}

#[test]
fn a05_invalid_skills_are_reported_and_do_not_affect_others() {
    let fixture = SkillFixture::new()
        .with_skill("workspace", "fine", &skill_text("fine", "fine"))
        .with_skill("workspace", "no-head", "Do it.")
        .with_skill("workspace", "other", &skill_text("another", "x"))
        .with_skill("workspace", "large", &(skill_text("large", "x") + &"x".repeat(70_000)));
    std::fs::create_dir(fixture.path("workspace/.agents/skills/empty")).unwrap();
    std::fs::write(fixture.path("workspace/.agents/skills/README.md"), "no skill").unwrap();
    let found = fixture.discover();
    assert!(found.skill("fine").is_some() && found.skills.len() == 2);
    let reasons: Vec<String> = found
        .invalid
        .iter()
        .map(|one| format!("{}: {}", one.path.parent().and_then(Path::file_name).unwrap().display(), one.reason))
        .collect();
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    for (reason, part) in reasons.iter().zip([
        "empty: ",
        "large: the file is larger",
        "no-head: the file does not start",
        "but its folder",
    ]) {
        assert!(reason.contains(part), "{reason}");
    }
}

#[test]
fn x06_workspace_skill_cannot_leave_the_workspace() {
    let fixture = SkillFixture::new().with_skill("workspace", "fine", &skill_text("fine", "fine"));
    std::fs::write(fixture.path("beside/SKILL.md"), skill_text("leak", "a secret")).unwrap();
    std::fs::create_dir(fixture.path("workspace/.agents/skills/leak")).unwrap();
    let leak = fixture.path("workspace/.agents/skills/leak/SKILL.md");
    symlink(fixture.path("beside/SKILL.md"), leak).unwrap();
    symlink(fixture.path("beside"), fixture.path("workspace/.agents/skills/beside")).unwrap();
    let found = fixture.discover();
    assert!(found.skill("leak").is_none());
    assert_eq!(found.invalid.len(), 2);
    assert!(found.invalid.iter().all(|one| one.reason.contains("outside the workspace")), "{:?}", found.invalid);
    let other = SkillFixture::new();
    std::fs::create_dir(other.path("workspace/.agents")).unwrap();
    symlink(fixture.path("workspace/.agents/skills"), other.path("workspace/.agents/skills")).unwrap();
    assert!(other.discover().skill("fine").is_none());
}
