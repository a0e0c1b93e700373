//! The built-in agent: a runner like any other.
//!
//! [`Agent`] is the loop: view, model, tool calls, again until no call is left. A line that starts with a
//! comma runs a tool directly. [`tools`] are the tools it comes with, [`skills`] the instructions it can read. It reaches the host only through the run API, and
//! [`register`] puts it where any plugin would put its own.

mod agent;
mod call_summary;
mod command;
mod next_step;
mod prompt;
mod run_handle;
pub mod skills;
mod step;
pub mod tools;

use std::path::PathBuf;
use std::sync::Arc;

use capstan_hooks::contracts::Runner;
use capstan_hooks::points::{BuildPrompt, ProvideRunners, ProvideTools, SystemPrompt};
use capstan_hooks::{HookRegistrar, InboundEvent, TurnState};

pub use agent::{Agent, LoopOptions};

use prompt::{HeaderMode, SystemPromptBuilder};
use skills::SkillCatalog;

/// What the user set for the agent's tools, skills and prompts.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The tools.
    pub tools: tools::ToolOptions,
    /// Where skills are looked for beside the workspace.
    pub skills: skills::SkillDirs,
    /// Whether a message says where it came from and when.
    pub message_context: bool,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self { tools: tools::ToolOptions::default(), skills: skills::SkillDirs::default(), message_context: true }
    }
}

/// Registers the agent, its tools and its prompts: the agent's part of the built-in plugin.
pub fn register(hooks: &mut HookRegistrar, options: LoopOptions, settings: AgentOptions) {
    let AgentOptions { tools, skills, message_context } = settings;
    let (system, listed, named) = (Arc::new(SystemPromptBuilder::new(skills.clone())), skills.clone(), skills);
    hooks
        .on(BuildPrompt, move |message: InboundEvent, state: TurnState| {
            let places = named.clone();
            async move {
                let told =
                    if message_context { HeaderMode::Include(prompt::received_at(&message)) } else { HeaderMode::Omit };
                if !prompt::can_request_skills(&message) {
                    return Ok(Some(prompt::render_message(&message, &SkillCatalog::default(), told)));
                }
                let workspace = state.get(TurnState::WORKSPACE_KEY);
                let workspace = PathBuf::from(workspace.as_ref().and_then(|path| path.as_str()).unwrap_or_default());
                // Skills are on disk, and the turn's other work must not wait for that.
                let found = tokio::task::spawn_blocking(move || places.find(&workspace)).await?;
                Ok(Some(prompt::render_message(&message, &found, told)))
            }
        })
        .on_sync(SystemPrompt, move |state: TurnState| Ok(Some(system.build(&state))))
        .on_sync(ProvideTools, move || Ok(Some(tools::built_in_tools(&tools, &listed))))
        .on_sync(ProvideRunners, move || Ok(Some(vec![Arc::new(Agent::new(options)) as Arc<dyn Runner>])));
}
