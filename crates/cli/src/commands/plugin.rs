//! Commands registered by plugins.

use std::ffi::OsString;

use capstan_hooks::contracts::CliCommand;
use capstan_hooks::points::RegisterCliCommands;
use capstan_protocol::ErrorCode;

use super::CommandContext;
use crate::CommandError;

pub(crate) async fn run_plugin_command(context: &CommandContext<'_>, words: Vec<OsString>) -> Result<(), CommandError> {
    let mut words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
    let name = words.next().unwrap_or_default();
    let runtime = context.build_hooks();
    let commands = runtime.collect_provided::<RegisterCliCommands, CliCommand>(|command| command.name.clone());
    let Some(command) = commands.iter().find(|command| command.name == name) else {
        return Err(CommandError::new(ErrorCode::Usage, format!("unknown command {name:?}")));
    };
    let failed = |error: capstan_hooks::BoxError| CommandError::new(ErrorCode::PluginCommandFailed, error.to_string());
    command.run(words.collect()).await.map_err(failed)
}
