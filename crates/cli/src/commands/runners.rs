//! `capstan runners`.

use capstan_hooks::HookRuntime;
use capstan_host::RunnerRegistry;
use capstan_policy::BindingError;
use capstan_protocol::{Descriptor, RunnerId};
use clap::Subcommand;
use serde::Serialize;

use super::{CommandContext, print_json, print_lines, replace_control_chars};
use crate::CommandError;

#[derive(Subcommand)]
pub(crate) enum RunnersCommand {
    /// List the runners available to bindings
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the capabilities, permissions and configuration schema of a runner
    Show {
        /// Id of the runner
        runner: String,
    },
}

/// Descriptors of all runners.
pub(super) fn known_runners(context: &CommandContext<'_>) -> Vec<Descriptor> {
    provided_runners(&context.build_hooks())
}

/// Descriptors of the runners that these hooks provide.
pub(super) fn provided_runners(hooks: &HookRuntime) -> Vec<Descriptor> {
    RunnerRegistry::from_hooks(hooks).descriptors()
}

pub(crate) fn run(context: &CommandContext<'_>, command: RunnersCommand) -> Result<(), CommandError> {
    let runners = known_runners(context);
    match command {
        RunnersCommand::List { json: true } => print_json(&runners),
        RunnersCommand::List { json: false } => print_lines(runners.iter().map(format_runner)),
        RunnersCommand::Show { runner } => {
            if let Some(found) = runners.iter().find(|known| known.id.as_str() == runner) {
                return print_json(&RunnerDetails { descriptor: found, warnings: warnings(found) });
            }
            Err(BindingError::unknown_runner(&RunnerId::new(runner), &runners).into())
        }
    }
}

/// A runner, with what its descriptor lacks.
#[derive(Serialize)]
struct RunnerDetails<'a> {
    #[serde(flatten)]
    descriptor: &'a Descriptor,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Problems of a descriptor that do not prevent its use.
pub(super) fn warnings(runner: &Descriptor) -> Vec<String> {
    let warning = |capability| format!("it asks for permissions of {capability} without declaring that capability");
    runner.undeclared_capabilities().into_iter().map(warning).collect()
}

fn format_runner(runner: &Descriptor) -> String {
    let description = runner.description.as_ref().map(|text| format!(": {}", text.text("en"))).unwrap_or_default();
    replace_control_chars(&format!("{}  {}{description}", runner.id, runner.label.text("en")))
}
