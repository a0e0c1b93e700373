//! `capstan runners`.

use std::sync::Arc;

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::Runner;
use capstan_hooks::points::ProvideRunners;
use capstan_host::BindingError;
use capstan_protocol::{Descriptor, RunnerId};
use clap::Subcommand;

use super::{plain, print_json, print_lines};
use crate::Failure;
use crate::command_line::Context;

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
pub(super) fn known(context: &Context<'_>) -> Vec<Descriptor> {
    provided(&context.hooks())
}

/// What every runner of these hooks says of itself.
pub(super) fn provided(hooks: &HookRuntime) -> Vec<Descriptor> {
    let runners = hooks.provided::<ProvideRunners, Arc<dyn Runner>>(|runner| runner.descriptor().id.to_string());
    runners.iter().map(|runner| runner.descriptor()).collect()
}

pub(crate) fn run(context: &Context<'_>, command: RunnersCommand) -> Result<(), Failure> {
    let runners = known(context);
    match command {
        RunnersCommand::List { json: true } => print_json(&runners),
        RunnersCommand::List { json: false } => print_lines(runners.iter().map(line)),
        RunnersCommand::Show { runner } => {
            if let Some(found) = runners.iter().find(|known| known.id.as_str() == runner) {
                return print_json(found);
            }
            Err(BindingError::unknown_runner(&RunnerId::new(runner), &runners).into())
        }
    }
}

fn line(runner: &Descriptor) -> String {
    let about = runner.description.as_ref().map(|text| format!(": {}", text.text("en"))).unwrap_or_default();
    plain(&format!("{}  {}{about}", runner.id, runner.label.text("en")))
}
