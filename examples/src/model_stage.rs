//! Replaces the model stage: no agent and no model is asked, and the turn goes on as ever.
//!
//! A plugin that answers only sometimes gives `Ok(None)` for the rest, and the next plugin is asked.

use capstan::hooks::args::Prompt;
use capstan::hooks::points::RunModel;
use capstan::hooks::{BoxError, Plugin, Registrar};

/// Answers in capitals to the last line of the prompt: the lines before it tell where the message came from.
pub struct Shout;

impl Plugin for Shout {
    fn name(&self) -> &'static str {
        "shout"
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        hooks.on(RunModel, |prompt: Prompt| async move {
            Ok(Some(prompt.text().lines().next_back().unwrap_or_default().to_uppercase()))
        });
        Ok(())
    }
}
