//! The tools the agent comes with.

mod artifact;
mod bash;
mod fs;
mod help;
pub(crate) mod image;
mod knowledge;
mod model;
mod quit;
mod skill;
mod subagent;
mod tape;
mod typed_tool;
pub mod web;

use std::sync::Arc;

use capstan_hooks::contracts::Tool;

use crate::skills::SkillDirs;

pub use fs::PathBounds;

/// What the user set for the tools.
#[derive(Debug, Clone, Default)]
pub struct ToolOptions {
    /// Where the file tools may work.
    pub files: PathBounds,
    /// Variables of the host's environment that commands get beside the usual ones; no secrets.
    pub environment: Vec<String>,
    /// The web.
    pub web: web::WebOptions,
}

/// Every built-in tool.
pub(crate) fn built_in_tools(settings: &ToolOptions, skills: &SkillDirs) -> Vec<Arc<dyn Tool>> {
    let files = || settings.files.clone();
    let jobs = Arc::new(bash::JobRegistry::new(settings.environment.clone()));
    vec![
        Arc::new(bash::run(&jobs).with_own_deadline()),
        Arc::new(bash::output(&jobs).with_own_deadline()),
        Arc::new(bash::kill(&jobs)),
        Arc::new(fs::read(files()).with_read_only()),
        Arc::new(fs::write(files())),
        Arc::new(fs::edit(files())),
        Arc::new(web::fetch(settings.web.clone()).with_read_only()),
        Arc::new(tape::info().with_read_only()),
        Arc::new(tape::search().with_read_only()),
        Arc::new(tape::handoff()),
        Arc::new(tape::anchors().with_read_only()),
        Arc::new(tape::reset()),
        Arc::new(artifact::read()),
        Arc::new(knowledge::search()),
        Arc::new(subagent::subagent()),
        Arc::new(skill::tool(skills.clone()).with_read_only()),
        Arc::new(model::tool()),
        Arc::new(quit::tool().with_read_only()),
        Arc::new(help::tool().with_read_only()),
    ]
}
