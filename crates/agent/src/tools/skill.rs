//! `skill`: the instructions of a skill.

use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed_tool::typed_tool;
use crate::skills::SkillDirs;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkillArgs {
    /// The skill.
    name: String,
}

pub(super) fn tool(places: SkillDirs) -> FnTool {
    let description = "Gives the instructions of a skill.";
    typed_tool("skill", description, move |arguments: SkillArgs, context: ToolContext| {
        let places = places.clone();
        async move {
            let work = tokio::task::spawn_blocking(move || places.find(&context.workspace));
            let found = work.await.map_err(|error| ToolError::new(error.to_string()))?;
            let name = arguments.name.trim().trim_start_matches('$');
            if let Some(skill) = found.skill(name) {
                return Ok(ToolOutput::ok(skill.instructions()));
            }
            let names: Vec<&str> = found.skills.iter().map(|skill| skill.name.as_str()).collect();
            Err(ToolError::new(format!("there is no skill {name:?}; there are: {}", names.join(", "))))
        }
    })
}
