//! Commands that plugins add.

use std::ffi::OsString;

use capstan_hooks::contracts::CliCommand;
use capstan_hooks::points::RegisterCliCommands;

use crate::command_line::Context;
use crate::{Exit, Failure};

pub(crate) async fn plugin(context: &Context<'_>, words: Vec<OsString>) -> Result<(), Failure> {
    let mut words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
    let name = words.next().unwrap_or_default();
    let runtime = context.hooks();
    let commands = runtime.provided::<RegisterCliCommands, CliCommand>(|command| command.name.clone());
    let Some(command) = commands.iter().find(|command| command.name == name) else {
        return Err(Failure::new("usage", format!("there is no command {name:?}"), Exit::Usage));
    };
    let failed =
        |error: capstan_hooks::BoxError| Failure::new("plugin-command-failed", error.to_string(), Exit::Failed);
    command.run(words.collect()).await.map_err(failed)
}
