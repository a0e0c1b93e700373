//! The built-in agent: a runner like any other.
//!
//! [`Agent`] is the loop: view, model, tool calls, again until no call is left. [`command`] is what a line that starts
//! with a comma means. [`tools`] are the tools it comes with. It reaches the host only through the run API, and
//! [`register`] puts it where any plugin would put its own.

mod agent;
pub mod command;
mod prompt;
mod step;
pub mod tools;

use std::sync::Arc;

use capstan_hooks::contracts::Runner;
use capstan_hooks::points::{BuildPrompt, ProvideRunners, ProvideTools, SystemPrompt};
use capstan_hooks::{Inbound, Registrar};

pub use agent::{Agent, Options};

/// Registers the agent, its tools and its prompts: the agent's part of the built-in plugin.
pub fn register(hooks: &mut Registrar, options: Options, tools: tools::Settings) {
    hooks
        .on(BuildPrompt, |message: Inbound| async move { Ok(Some(message.input.content())) })
        .on_sync(SystemPrompt, || Ok(Some(prompt::SYSTEM.to_owned())))
        .on_sync(ProvideTools, move || Ok(Some(tools::all(&tools))))
        .on_sync(ProvideRunners, move || Ok(Some(vec![Arc::new(Agent::new(options)) as Arc<dyn Runner>])));
}
