//! `capstan config show`.

use super::{print, print_json};
use crate::command_line::Context;
use crate::{Failure, builder};

pub(crate) fn config_show(context: &Context<'_>, json: bool) -> Result<(), Failure> {
    let shown = context.config.shown();
    for line in context.config.unprovided_channels(&builder::channels(&context.hooks())) {
        complain!("warning: {line}");
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
