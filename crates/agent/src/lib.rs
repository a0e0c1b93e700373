//! The built-in agent: a runner like any other.
//!
//! [`Agent`] is the loop: view, model, tool calls, again until no call is left. A line that starts with a
//! comma runs a tool directly. [`tools`] are the tools it comes with, [`skills`] the instructions it can read. It reaches the host only through the run API, and
//! [`register`] puts it where any plugin would put its own.

mod agent;
mod answers;
mod command;
mod done;
mod given;
mod prompt;
pub mod skills;
mod step;
pub mod tools;

use std::path::PathBuf;
use std::sync::Arc;

use capstan_hooks::contracts::Runner;
use capstan_hooks::points::{BuildPrompt, ProvideRunners, ProvideTools, SystemPrompt};
use capstan_hooks::{Inbound, Registrar, State};

pub use agent::{Agent, Options};

use prompt::{System, Told};
use skills::Found;

/// What the user set for the agent's tools, skills and prompts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The tools.
    pub tools: tools::Settings,
    /// Where skills are looked for beside the workspace.
    pub skills: skills::Places,
    /// Whether a message says where it came from and when.
    pub message_context: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { tools: tools::Settings::default(), skills: skills::Places::default(), message_context: true }
    }
}

/// Registers the agent, its tools and its prompts: the agent's part of the built-in plugin.
pub fn register(hooks: &mut Registrar, options: Options, settings: Settings) {
    let Settings { tools, skills, message_context } = settings;
    let (system, listed, named) = (Arc::new(System::new(skills.clone())), skills.clone(), skills);
    hooks
        .on(BuildPrompt, move |message: Inbound, state: State| {
            let places = named.clone();
            async move {
                let told = if message_context { Told::At(prompt::came_at(&message)) } else { Told::Nothing };
                if !prompt::may_name_skills(&message) {
                    return Ok(Some(prompt::message(&message, &Found::default(), told)));
                }
                let workspace = state.get(State::WORKSPACE);
                let workspace = PathBuf::from(workspace.as_ref().and_then(|path| path.as_str()).unwrap_or_default());
                // Skills are on disk, and the turn's other work must not wait for that.
                let found = tokio::task::spawn_blocking(move || places.find(&workspace)).await?;
                Ok(Some(prompt::message(&message, &found, told)))
            }
        })
        .on_sync(SystemPrompt, move |state: State| Ok(Some(system.prompt(&state))))
        .on_sync(ProvideTools, move || Ok(Some(tools::all(&tools, &listed))))
        .on_sync(ProvideRunners, move || Ok(Some(vec![Arc::new(Agent::new(options)) as Arc<dyn Runner>])));
}
