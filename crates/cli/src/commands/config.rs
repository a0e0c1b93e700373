//! `capstan config`.

use clap::Subcommand;

use super::{CommandContext, print, print_json, replace_control_chars};
use crate::{CommandError, builder};

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting with its value and origin; secrets are masked
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(context: &CommandContext<'_>, command: &ConfigCommand) -> Result<(), CommandError> {
    let ConfigCommand::Show { json } = *command;
    let settings = context.config.list_settings();
    let channels = builder::provided_channels(&context.build_hooks());
    for line in context.config.unprovided_channels(&channels).into_iter().chain(context.config.unknown_plugins()) {
        stderr_line!("warning: {line}");
    }
    if json {
        return print_json(&settings);
    }
    let width = settings.iter().map(|setting| setting.key.len()).max().unwrap_or_default();
    let values: Vec<&str> = settings.iter().map(|setting| setting.value.as_deref().unwrap_or("-")).collect();
    let value_width = values.iter().map(|value| value.chars().count()).max().unwrap_or_default();
    for (setting, value) in settings.iter().zip(values) {
        print(&replace_control_chars(&format!("{:width$}  {value:value_width$}  {}", setting.key, setting.origin)))?;
    }
    print(&format!("{:width$}  {}", "home", context.config.home.display()))
}
