//! Built-in agent: the runner that Capstan ships with.
//!
//! [`Agent`] implements the agent loop: read the view, call the model, execute its tool calls, repeat until a reply has
//! no calls. A line that starts with a comma runs one tool directly. [`tools`] holds the built-in tools, [`skills`]
//! finds the instruction files a model can load, [`paths`] confines file access.
//!
//! The agent has no privileges: it reaches the host only through the run API, and [`register`] uses the same hook
//! points as any plugin. Sessions, storage, delivery and model providers are not part of this crate.

mod agent;
mod agent_config;
mod call_summary;
mod command;
mod handoff_summary;
mod instruction_rules;
mod next_step;
pub mod paths;
mod prompt;
mod run_handle;
pub mod skills;
mod step;
pub mod tools;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::args::GrantedTools;
use capstan_hooks::contracts::Runner;
use capstan_hooks::points::{BuildPrompt, ProvideRunners, ProvideTools, SystemPrompt};
use capstan_hooks::{HookRegistrar, InboundEvent, TurnState};
use tokio::time::timeout;

pub use agent::{Agent, LoopOptions};
pub use instruction_rules::{InstructionRules, WorkspaceTrust};

use prompt::SystemPromptBuilder;
use skills::SkillCatalog;
use tools::WorkSlots;

/// User settings for the agent's tools, skills and prompts.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// Tool settings.
    pub tools: tools::ToolOptions,
    /// Directories searched for skills in addition to the workspace.
    pub skills: skills::SkillDirs,
    /// Prefix each message with its channel, chat, sender and time.
    pub message_context: bool,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self { tools: tools::ToolOptions::default(), skills: skills::SkillDirs::default(), message_context: true }
    }
}

/// Maximum number of prompts for which a host reads skills at the same time. Each read takes a thread, and the memory of a
/// thread stays in use for a while.
const MAX_PROMPT_READS: usize = 4;

/// Maximum time to wait for a slot for reading skills.
const MAX_SLOT_WAIT: Duration = Duration::from_secs(1);

/// Registers the agent with its tools and prompts; called by the built-in plugin.
pub fn register(hooks: &mut HookRegistrar, loop_options: LoopOptions, agent_options: AgentOptions) {
    register_tools_and_prompts(hooks, agent_options);
    hooks
        .on_sync(ProvideRunners, move || Ok(Some(vec![Arc::new(Agent::new(loop_options.clone())) as Arc<dyn Runner>])));
}

/// Registers the tools and prompts of the agent, for a host with another runner.
pub fn register_tools_and_prompts(hooks: &mut HookRegistrar, agent_options: AgentOptions) {
    let AgentOptions { tools, skills, message_context } = agent_options;
    let (system, tool_skills, prompt_skills) =
        (Arc::new(SystemPromptBuilder::new(skills.clone())), skills.clone(), skills);
    let prompt_slots = WorkSlots::new(MAX_PROMPT_READS);
    hooks
        .on(BuildPrompt, move |message: InboundEvent, state: TurnState, tools: GrantedTools| {
            let (skill_dirs, slots) = (prompt_skills.clone(), prompt_slots.clone());
            async move {
                if !tools.allows(tools::SKILL_TOOL) || !prompt::can_request_skills(&message) {
                    return Ok(Some(prompt::render_prompt(&message, &SkillCatalog::default(), message_context)));
                }
                let workspace = state.get(TurnState::WORKSPACE_KEY);
                let workspace = PathBuf::from(workspace.as_ref().and_then(|path| path.as_str()).unwrap_or_default());
                // Skills are read from disk, which must not block the turn's other work.
                // Reads that hang must not delay other sessions, which go on without a slot.
                let slot = timeout(MAX_SLOT_WAIT, slots.acquire()).await.ok();
                let read = tokio::task::spawn_blocking(move || (skill_dirs.find(&workspace), slot));
                let (catalog, _slot) = read.await?;
                Ok(Some(prompt::render_prompt(&message, &catalog, message_context)))
            }
        })
        .on_sync(SystemPrompt, move |state: TurnState| Ok(Some(system.build(&state))))
        .on_sync(ProvideTools, move || Ok(Some(tools::built_in_tools(&tools, &tool_skills))));
}
