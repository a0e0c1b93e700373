//! Replaces the model stage: no agent and no model is asked, and the turn goes on as ever.
//!
//! A plugin that answers only sometimes gives `Ok(None)` for the rest, and the next plugin is asked.

use capstan::hooks::args::PromptContent;
use capstan::hooks::points::RunModel;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};

/// Answers in capitals to the last line of the prompt: the lines before it tell where the message came from.
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
