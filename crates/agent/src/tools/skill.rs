//! `skill`: loads the instructions of a skill.

use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed_tool::typed_tool;
use crate::skills::SkillDirs;

/// Name of the tool. A message includes the skills that it names only if its run may call it.
pub(crate) const SKILL_TOOL: &str = "skill";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkillArgs {
    /// Name of the skill; without it, the skills are listed.
    name: Option<String>,
}

pub(super) fn tool(skill_dirs: SkillDirs) -> FnTool {
    let description = "Loads the instructions of a skill, or lists the skills.";
    typed_tool(SKILL_TOOL, description, move |arguments: SkillArgs, context: ToolContext| {
        let skill_dirs = skill_dirs.clone();
        async move {
            let work = tokio::task::spawn_blocking(move || skill_dirs.find(&context.workspace));
            let catalog = work.await.map_err(|error| ToolError::new(error.to_string()))?;
            let Some(name) = &arguments.name else {
                let lines = catalog.skills.iter().map(|skill| format!("{}: {}", skill.name, skill.description));
                return Ok(ToolOutput::ok(lines.collect::<Vec<_>>().join("\n")));
            };
            let name = name.trim().trim_start_matches('$');
            if let Some(skill) = catalog.skill(name) {
                return Ok(ToolOutput::ok(skill.instructions()));
            }
            let names: Vec<&str> = catalog.skills.iter().map(|skill| skill.name.as_str()).collect();
            Err(ToolError::new(format!("there is no skill {name:?}; available skills: {}", names.join(", "))))
        }
    })
}
