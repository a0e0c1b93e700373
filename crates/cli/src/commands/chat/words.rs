//! What can be completed in a chat.

use std::path::Path;
use std::sync::Arc;

use capstan_channels::chat::Words;
use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::Tool;
use capstan_hooks::points::ProvideTools;

/// The commands of the chat itself.
pub(super) const OWN: [&str; 2] = ["show", "quit"];
/// Where skills are kept, in a workspace and in the user's own folder.
const SKILLS: &str = ".agents/skills";
/// How many names of a folder are looked at.
const NAMES: usize = 1000;

/// The commands and skills there are.
pub(super) fn words(hooks: &HookRuntime, workspace: &Path) -> Words {
    let tools = hooks.provided::<ProvideTools, Arc<dyn Tool>>(|tool| tool.spec().name.to_string());
    let mut commands: Vec<String> = tools.iter().map(|tool| tool.spec().name.to_string()).collect();
    commands.extend(OWN.map(str::to_owned));
    commands.sort();
    commands.dedup();
    let user = std::env::var_os("HOME").map(|home| Path::new(&home).join(SKILLS));
    let mut skills: Vec<String> =
        [Some(workspace.join(SKILLS)), user].iter().flatten().flat_map(|folder| skills(folder)).collect();
    skills.sort();
    skills.dedup();
    Words { commands, skills }
}

fn skills(folder: &Path) -> Vec<String> {
    let has_skill = |name: &String| folder.join(name).join("SKILL.md").is_file();
    let names = names(folder).into_iter().map(|name| name.trim_end_matches('/').to_owned());
    names.filter(has_skill).collect()
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
