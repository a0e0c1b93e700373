//! Commands that plugins add.

use std::ffi::OsString;

use capstan_hooks::contracts::CliCommand;
use capstan_hooks::points::RegisterCliCommands;

use crate::command_line::CommandContext;
use crate::{CliExitCode, CommandError};

pub(crate) async fn run_plugin_command(context: &CommandContext<'_>, words: Vec<OsString>) -> Result<(), CommandError> {
    let mut words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
    let name = words.next().unwrap_or_default();
    let runtime = context.build_hooks();
    let commands = runtime.collect_provided::<RegisterCliCommands, CliCommand>(|command| command.name.clone());
    let Some(command) = commands.iter().find(|command| command.name == name) else {
        return Err(CommandError::new("usage", format!("there is no command {name:?}"), CliExitCode::Usage));
    };
    let failed = |error: capstan_hooks::BoxError| {
        CommandError::new("plugin-command-failed", error.to_string(), CliExitCode::Failed)
    };
    command.run(words.collect()).await.map_err(failed)
}
