//! Replaces the model stage: neither agent nor model is called, and the rest of the turn is unchanged.
//!
//! A plugin that replies only sometimes returns `Ok(None)` otherwise, and the next plugin is asked.

use capstan::hooks::args::PromptContent;
use capstan::hooks::points::RunModel;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};

/// Plugin that replies with the last line of the prompt in capitals; the lines before it give the origin of the
/// message.
pub struct ShoutPlugin;

impl Plugin for ShoutPlugin {
    fn name(&self) -> &'static str {
        "shout"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        hooks.on(RunModel, |prompt: PromptContent| async move {
            Ok(Some(prompt.text().lines().next_back().unwrap_or_default().to_uppercase()))
        });
        Ok(())
    }
}
