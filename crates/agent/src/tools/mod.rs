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
mod typed;
pub mod web;

use std::sync::Arc;

use capstan_hooks::contracts::Tool;

use crate::skills::Places;

pub use fs::Bounds;

/// What the user set for the tools.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where the file tools may work.
    pub files: Bounds,
    /// Variables of the host's environment that commands get beside the usual ones; no secrets.
    pub environment: Vec<String>,
    /// The web.
    pub web: web::Settings,
}

/// Every built-in tool.
pub(crate) fn all(settings: &Settings, skills: &Places) -> Vec<Arc<dyn Tool>> {
    let files = || settings.files.clone();
    let jobs = Arc::new(bash::Jobs::new(settings.environment.clone()));
    vec![
        Arc::new(bash::run(&jobs).with_own_deadline()),
        Arc::new(bash::output(&jobs).with_own_deadline()),
        Arc::new(bash::kill(&jobs)),
        Arc::new(fs::read(files()).that_only_looks()),
        Arc::new(fs::write(files())),
        Arc::new(fs::edit(files())),
        Arc::new(web::fetch(settings.web.clone()).that_only_looks()),
        Arc::new(tape::info().that_only_looks()),
        Arc::new(tape::search().that_only_looks()),
        Arc::new(tape::handoff()),
        Arc::new(tape::anchors().that_only_looks()),
        Arc::new(tape::reset()),
        Arc::new(artifact::read()),
        Arc::new(knowledge::search()),
        Arc::new(subagent::subagent()),
        Arc::new(skill::tool(skills.clone()).that_only_looks()),
        Arc::new(model::tool()),
        Arc::new(quit::tool().that_only_looks()),
        Arc::new(help::tool().that_only_looks()),
    ]
}
