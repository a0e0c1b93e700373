//! What can be completed in a chat.

use std::path::Path;
use std::sync::Arc;

use capstan_agent::skills::Places;
use capstan_channels::chat::Words;
use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::{KnowledgeSource, Tool};
use capstan_hooks::points::{ProvideKnowledge, ProvideTools};

/// The commands of the chat itself.
pub(super) const OWN: [&str; 2] = ["show", "quit"];
/// How many names of a folder are looked at.
const NAMES: usize = 1000;

/// The commands and skills there are.
pub(super) fn words(hooks: &HookRuntime, workspace: &Path, skills: &Places) -> Words {
    let bases = hooks.provided::<ProvideKnowledge, Arc<dyn KnowledgeSource>>(|source| source.base().id);
    let mut tools = hooks.provided::<ProvideTools, Arc<dyn Tool>>(|tool| tool.spec().name.to_string());
    tools.retain(|tool| !tool.asks_knowledge() || !bases.is_empty());
    let mut commands: Vec<String> = tools.iter().map(|tool| tool.spec().name.to_string()).collect();
    commands.extend(OWN.map(str::to_owned));
    commands.sort();
    commands.dedup();
    let found = skills.find(workspace);
    Words { commands, skills: found.skills.into_iter().map(|skill| skill.name).collect() }
}

/// What stands in a folder: names, those of folders with a slash. One that cannot be read has none.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let name = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_folder = entry.path().is_dir();
        // What would have to be quoted is written by hand.
        (!name.contains(char::is_whitespace)).then(|| if is_folder { format!("{name}/") } else { name })
    };
    entries.take(NAMES).filter_map(Result::ok).filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use capstan_agent::skills::Places;
    use capstan_hooks::{Deadlines, HookRuntime, Registry};

    use super::words;

    #[test]
    fn a05_the_skills_that_are_completed_are_those_the_agent_knows() {
        let (workspace, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let skill = |root: &std::path::Path, name: &str, text: &str| {
            let folder = root.join(".agents/skills").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("SKILL.md"), text).unwrap();
        };
        skill(workspace.path(), "good", "---\nname: good\ndescription: Does good.\n---\nDo good.\n");
        skill(workspace.path(), "broken", "no head");
        skill(user.path(), "mine", "---\nname: mine\ndescription: Is mine.\n---\nDo as I do.\n");
        let hooks = HookRuntime::new(Registry::new(), Deadlines::default());
        let places = Places { user: Some(user.path().to_owned()) };
        let words = words(&hooks, workspace.path(), &places);
        assert_eq!(words.skills, ["good", "mine", "skill-creator"]);
        assert_eq!(words.commands, ["quit", "show"]);
    }
}
