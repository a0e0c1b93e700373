//! Words and paths for tab completion.

use std::path::Path;
use std::sync::Arc;

use capstan_agent::skills::SkillDirs;
use capstan_channels::chat::CompletionWords;
use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::{KnowledgeSource, Tool};
use capstan_hooks::points::{ProvideKnowledge, ProvideTools};

/// Commands of the chat itself, not of the agent.
pub(super) const CHAT_COMMANDS: [&str; 2] = ["show", "quit"];
/// Maximum number of directory entries read for completion.
const MAX_COMPLETED_NAMES: usize = 1000;

/// Names of the available commands and skills.
pub(super) fn completion_words(hooks: &HookRuntime, workspace: &Path, skills: &SkillDirs) -> CompletionWords {
    let bases =
        hooks.collect_provided::<ProvideKnowledge, Arc<dyn KnowledgeSource>>(|source| source.knowledge_base().id);
    let mut tools = hooks.collect_provided::<ProvideTools, Arc<dyn Tool>>(|tool| tool.spec().name.to_string());
    tools.retain(|tool| !tool.needs_knowledge() || !bases.is_empty());
    let mut commands: Vec<String> = tools.iter().map(|tool| tool.spec().name.to_string()).collect();
    commands.extend(CHAT_COMMANDS.map(str::to_owned));
    commands.sort();
    commands.dedup();
    let catalog = skills.find(workspace);
    CompletionWords { commands, skills: catalog.skills.into_iter().map(|skill| skill.name).collect() }
}

/// Names in a folder, with a trailing slash for folders. Empty if the folder cannot be read.
pub(super) fn completion_paths(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let name = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_folder = entry.path().is_dir();
        // Names that would need quotes are not completed.
        (!name.contains(char::is_whitespace)).then(|| if is_folder { format!("{name}/") } else { name })
    };
    entries.take(MAX_COMPLETED_NAMES).filter_map(Result::ok).filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use capstan_agent::InstructionRules;
    use capstan_agent::skills::SkillDirs;
    use capstan_hooks::{HookDeadlines, HookRuntime, Registry};

    use super::completion_words;

    #[test]
    fn a05_completion_offers_only_valid_skills() {
        let (workspace, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let skill = |root: &std::path::Path, name: &str, text: &str| {
            let folder = root.join(".agents/skills").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("SKILL.md"), text).unwrap();
        };
        skill(workspace.path(), "good", "---\nname: good\ndescription: Does good.\n---\nDo good.\n");
        skill(workspace.path(), "broken", "no head");
        skill(user.path(), "mine", "---\nname: mine\ndescription: Is mine.\n---\nDo as I do.\n");
        let hooks = HookRuntime::new(Registry::new(), HookDeadlines::default());
        let skills = SkillDirs { user: Some(user.path().to_owned()), rules: InstructionRules::trusted() };
        let words = completion_words(&hooks, workspace.path(), &skills);
        assert_eq!(words.skills, ["good", "mine", "skill-creator"]);
        assert_eq!(words.commands, ["quit", "show"]);
    }
}
