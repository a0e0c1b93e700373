//! `capstan runners`.

use std::sync::Arc;

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::Runner;
use capstan_hooks::points::ProvideRunners;
use capstan_policy::BindingError;
use capstan_protocol::{Descriptor, RunnerId};
use clap::Subcommand;

use super::{print_json, print_lines, replace_control_chars};
use crate::CommandError;
use crate::command_line::CommandContext;

#[derive(Subcommand)]
pub(crate) enum RunnersCommand {
    /// Lists the runners that bindings can name.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows a runner: what it can do, what it needs at most, and what its configuration must look like.
    Show {
        /// Its id.
        runner: String,
    },
}

/// What every runner says of itself.
pub(super) fn known_runners(context: &CommandContext<'_>) -> Vec<Descriptor> {
    provided_runners(&context.build_hooks())
}

/// What every runner of these hooks says of itself.
pub(super) fn provided_runners(hooks: &HookRuntime) -> Vec<Descriptor> {
    let runners =
        hooks.collect_provided::<ProvideRunners, Arc<dyn Runner>>(|runner| runner.descriptor().id.to_string());
    runners.iter().map(|runner| runner.descriptor()).collect()
}

pub(crate) fn run(context: &CommandContext<'_>, command: RunnersCommand) -> Result<(), CommandError> {
    let runners = known_runners(context);
    match command {
        RunnersCommand::List { json: true } => print_json(&runners),
        RunnersCommand::List { json: false } => print_lines(runners.iter().map(format_runner)),
        RunnersCommand::Show { runner } => {
            if let Some(found) = runners.iter().find(|known| known.id.as_str() == runner) {
                return print_json(found);
            }
            Err(BindingError::unknown_runner(&RunnerId::new(runner), &runners).into())
        }
    }
}

fn format_runner(runner: &Descriptor) -> String {
    let about = runner.description.as_ref().map(|text| format!(": {}", text.text("en"))).unwrap_or_default();
    replace_control_chars(&format!("{}  {}{about}", runner.id, runner.label.text("en")))
}
