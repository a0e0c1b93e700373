//! `capstan config show`.

use super::{print, print_json};
use crate::command_line::CommandContext;
use crate::{CommandError, builder};

pub(crate) fn show_config(context: &CommandContext<'_>, json: bool) -> Result<(), CommandError> {
    let shown = context.config.list_settings();
    for line in context.config.unprovided_channels(&builder::provided_channels(&context.build_hooks())) {
        stderr_line!("warning: {line}");
    }
    if json {
        return print_json(&shown);
    }
    let width = shown.iter().map(|setting| setting.key.len()).max().unwrap_or_default();
    let values: Vec<&str> = shown.iter().map(|setting| setting.value.as_deref().unwrap_or("-")).collect();
    let value_width = values.iter().map(|value| value.chars().count()).max().unwrap_or_default();
    for (setting, value) in shown.iter().zip(values) {
        print(&format!("{:width$}  {value:value_width$}  {}", setting.key, setting.origin))?;
    }
    print(&format!("{:width$}  {}", "home", context.config.home.display()))
}
