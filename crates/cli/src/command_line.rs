//! The command line: built-in commands, logging, exit codes and the dispatch to commands.

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use capstan_channels::SharedTty;
use capstan_hooks::BoxError;
use capstan_hooks::contracts::{CliCommand, CliInvocation};
use capstan_protocol::{ErrorCode, ExitClass};
use clap::error::ErrorKind;
use clap::{Args, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use futures::FutureExt as _;

use crate::command_catalog::{CommandCatalog, ProvidedCommand};
use crate::command_environment::CommandEnvironment;
use crate::command_line_preview::CommandLinePreview;
use crate::commands::{
    CommandContext, WorkspaceFlag, artifacts, bindings, chat, config, doctor, events, hooks, onboard, outbox, run,
    runners, runs, serve, skills, state, store, tape, trust,
};
use crate::runtime::SessionRuntime;
use crate::{Capstan, CommandError, init_process, open_files};

/// Time that blocked threads get to end after a command has finished.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);
/// Name and alias of the command that runs until it is stopped.
const SERVE_NAMES: &[&str] = &["serve", "gateway"];

/// A self-hosted runtime for agents: every conversation is a tape, every stage of a turn is a hook.
#[derive(Parser)]
#[command(name = "capstan", version, about, arg_required_else_help = true, subcommand_required = true)]
struct GlobalOptions {
    // A command gets the value whether it precedes or follows the name of the command.
    #[command(flatten)]
    _workspace: WorkspaceFlag,
}

#[derive(Subcommand)]
enum RootCommand {
    /// Run one turn and print the reply
    Run(run::RunArgs),
    /// Chat with the agent in the terminal
    ///
    /// Opens a full-screen chat. If standard input or output is not a terminal, each line of input is one message and
    /// replies are printed as plain text.
    Chat(chat::ChatArgs),
    /// Listen on channels and serve their events
    ///
    /// Runs until every channel has closed or the process receives SIGINT, SIGTERM or SIGHUP.
    #[command(alias = "gateway")]
    Serve(serve::ServeArgs),
    /// Choose a model, test its API key, and save both
    Onboard(onboard::OnboardArgs),
    /// Check the installation and suggest fixes
    ///
    /// Exits with 0 if no check reports a problem, even if there are warnings, and with 1 otherwise.
    Doctor(doctor::DoctorArgs),
    /// Submit events to the host
    Events(WorkspaceCommand<events::EventsCommand>),
    /// Manage bindings: which runner serves which events, with which permissions
    Bindings(WorkspaceCommand<bindings::BindingsCommand>),
    /// Inspect the available runners
    Runners(WorkspaceCommand<runners::RunnersCommand>),
    /// Inspect and cancel runs
    Runs(WorkspaceCommand<runs::RunsCommand>),
    /// List, resend and drop held and undelivered messages
    Outbox(WorkspaceCommand<outbox::OutboxCommand>),
    /// List, show and remove artifacts: long tool results, and files of runs
    Artifacts(WorkspaceCommand<artifacts::ArtifactsCommand>),
    /// Inspect and edit the stored state of runners
    State(WorkspaceCommand<state::StateCommand>),
    /// Back up, restore, migrate and roll back the database
    Store(WorkspaceCommand<store::StoreCommand>),
    /// List the hooks, their aggregation, and their implementations in call order
    Hooks(hooks::HooksArgs),
    /// Inspect, search, export, import and fork tapes
    Tape(WorkspaceCommand<tape::TapeCommand>),
    /// List the skills of the agent and check for invalid ones
    Skills(WorkspaceCommand<skills::SkillsCommand>),
    /// Show the configuration
    Config(WorkspaceCommand<config::ConfigCommand>),
    /// Trust a workspace: use its AGENTS.md, its skills and all of its settings
    Trust(trust::TrustArgs),
    /// Remove the trust of a workspace
    Untrust(trust::UntrustArgs),
}

// A group of commands that share `--workspace`. Its help text is that of the `RootCommand` variant, so no doc comment here.
#[derive(Args)]
struct WorkspaceCommand<C: Subcommand> {
    #[command(subcommand)]
    command: C,
    #[command(flatten)]
    workspace: WorkspaceFlag,
}

/// The built-in commands, which run with the plugins of a distribution.
pub(crate) fn builtin_commands(capstan: &Arc<Capstan>) -> Vec<CliCommand> {
    let definitions = RootCommand::augment_subcommands(Command::new("capstan"));
    let to_command = |definition: &Command| {
        let capstan = Arc::clone(capstan);
        CliCommand::new(definition.clone(), move |invocation| {
            let capstan = Arc::clone(&capstan);
            async move {
                let command = RootCommand::from_arg_matches(invocation.command_line())?;
                Ok(execute(&capstan, command).await?)
            }
        })
    };
    definitions.get_subcommands().map(to_command).collect()
}

impl Capstan {
    /// Runs the command line with the arguments of this process.
    pub fn main(self) -> ExitCode {
        let preview = CommandLinePreview::scan(std::env::args_os().skip(1));
        start_logging(&preview);
        make_undumpable();
        if init_process::is_init_process() && preview.is_command(SERVE_NAMES) {
            match init_process::run_as_init() {
                Ok(code) => return code,
                Err(error) => tracing::warn!(%error, "orphaned processes are not reaped"),
            }
        }
        open_files::raise_file_limit();
        let runtime = match SessionRuntime::start() {
            Ok(runtime) => runtime,
            Err(error) => {
                return report_failure(&CommandError::new(ErrorCode::StoreFailed, format!("cannot start: {error}")));
            }
        };
        let capstan = Arc::new(self);
        let exit_code = runtime.block_on(async {
            catch_file_size_signal();
            run_command_line(&capstan, &preview).await
        });
        runtime.shut_down(RUNTIME_SHUTDOWN_TIMEOUT);
        exit_code
    }
}

/// Collects the commands, parses the arguments of this process, and runs the command that they name.
async fn run_command_line(capstan: &Arc<Capstan>, preview: &CommandLinePreview) -> ExitCode {
    // Inside the runtime, where plugins may start tasks while they register.
    let (catalog, unregistered) = capstan.load_commands(preview.workspace.as_deref());
    let mut command_line = catalog.add_to(GlobalOptions::command());
    let matches = match command_line.try_get_matches_from_mut(std::env::args_os()) {
        Ok(matches) => matches,
        Err(error) => {
            let unregistered = unregistered.filter(|_| capstan.has_plugins());
            if let (ErrorKind::InvalidSubcommand, Some(failure)) = (error.kind(), &unregistered) {
                // The command may be one of a plugin.
                return report_failure(failure);
            }
            if is_help(&error) {
                report_missing_commands(&catalog, unregistered.as_ref());
            }
            return print_usage(&error, &command_line);
        }
    };
    let Some(provided) = matches.subcommand_name().and_then(|name| catalog.get(name)) else {
        return report_failure(&CommandError::new(ErrorCode::Usage, "no command"));
    };
    let names = [Some(provided.command.name()), preview.command.as_deref()];
    for unavailable in catalog.unavailable().iter().filter(|one| names.contains(&Some(one.command.as_str()))) {
        stderr_line!("warning: {unavailable}");
    }
    let environment = CommandEnvironment { capstan: Arc::clone(capstan), plugin: provided.plugin.clone() };
    match run_provided(provided, CliInvocation::new(matches, Arc::new(environment))).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_command_error(error, &command_line),
    }
}

/// Runs a command. A panic of a plugin's command is its failure.
async fn run_provided(provided: &ProvidedCommand, invocation: CliInvocation) -> Result<(), BoxError> {
    if provided.is_builtin {
        return provided.command.run(invocation).await;
    }
    let panicked = |_| Err(format!("the command of the plugin {} panicked", provided.plugin).into());
    AssertUnwindSafe(provided.command.run(invocation)).catch_unwind().await.unwrap_or_else(panicked)
}

/// Reports the failure of a command: one with a code as such, an error of clap as a usage error.
fn report_command_error(error: BoxError, command_line: &Command) -> ExitCode {
    let error = match error.downcast::<CommandError>() {
        Ok(failure) => return report_failure(&failure),
        Err(error) => error,
    };
    match error.downcast::<clap::Error>() {
        Ok(usage) => print_usage(&usage, command_line),
        Err(error) => report_failure(&CommandError::new(ErrorCode::PluginCommandFailed, error.to_string())),
    }
}

/// Returns true if the error is a help text that was asked for, or shown for lack of a command.
fn is_help(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)
}

/// Reports commands of plugins that a help text does not list.
fn report_missing_commands(catalog: &CommandCatalog, unregistered: Option<&CommandError>) {
    for unavailable in catalog.unavailable() {
        stderr_line!("warning: {unavailable}");
    }
    if let Some(failure) = unregistered {
        stderr_line!("warning: commands of plugins are not listed: {}", failure.message);
    }
}

fn report_failure(failure: &CommandError) -> ExitCode {
    stderr_line!("{failure}");
    failure.exit.into()
}

/// Prints a usage error, or the help or version text, which clap returns as errors too.
fn print_usage(error: &clap::Error, command_line: &Command) -> ExitCode {
    if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let message = error.render().to_string();
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        let message = message.trim_end().trim_end_matches("For more information, try '--help'.").trim_end();
        let requested = requested_command(command_line, std::env::args_os().skip(1));
        let hint = format!("run `{requested} --help` for usage");
        return report_failure(&CommandError::new(ErrorCode::Usage, message).with_hint(&hint));
    }
    // A failure to print has no other place to be reported.
    let _unprinted = error.print();
    if error.use_stderr() { ExitClass::Usage.into() } else { ExitCode::SUCCESS }
}

/// The longest known command that the arguments name, such as `capstan tape show`.
fn requested_command(command_line: &Command, arguments: impl Iterator<Item = OsString>) -> String {
    let mut command = command_line;
    let mut path = command.get_name().to_owned();
    for argument in arguments {
        match command.find_subcommand(&argument) {
            Some(subcommand) => {
                path = format!("{path} {}", subcommand.get_name());
                command = subcommand;
            }
            None if argument.to_string_lossy().starts_with('-') => {}
            None => break,
        }
    }
    path
}

async fn execute(capstan: &Arc<Capstan>, command: RootCommand) -> Result<(), CommandError> {
    match command {
        RootCommand::Run(arguments) => run::run(CommandContext::load(capstan, &arguments.workspace)?, arguments).await,
        RootCommand::Chat(arguments) => {
            chat::run_chat(CommandContext::load(capstan, &arguments.workspace)?, arguments).await
        }
        RootCommand::Onboard(arguments) => {
            onboard::run_onboard(CommandContext::load(capstan, &arguments.workspace)?, arguments).await
        }
        RootCommand::Doctor(arguments) => doctor::doctor(capstan, &arguments).await,
        RootCommand::Events(arguments) => {
            events::run(CommandContext::load(capstan, &arguments.workspace)?, arguments.command).await
        }
        RootCommand::Bindings(arguments) => {
            bindings::run(CommandContext::load(capstan, &arguments.workspace)?, arguments.command).await
        }
        RootCommand::Runners(arguments) => {
            runners::run(&CommandContext::load(capstan, &arguments.workspace)?, arguments.command)
        }
        RootCommand::Runs(arguments) => {
            runs::run(CommandContext::load(capstan, &arguments.workspace)?, arguments.command).await
        }
        RootCommand::Outbox(arguments) => {
            outbox::run(CommandContext::load(capstan, &arguments.workspace)?, arguments.command).await
        }
        RootCommand::Artifacts(arguments) => {
            artifacts::run(CommandContext::load(capstan, &arguments.workspace)?, arguments.command).await
        }
        RootCommand::State(arguments) => {
            state::run(CommandContext::load(capstan, &arguments.workspace)?, arguments.command).await
        }
        RootCommand::Store(arguments) => {
            store::run(CommandContext::load(capstan, &arguments.workspace)?, arguments.command).await
        }
        RootCommand::Serve(arguments) => {
            serve::serve(CommandContext::load(capstan, &arguments.workspace)?, arguments).await
        }
        RootCommand::Hooks(arguments) => {
            hooks::list_hooks(&CommandContext::load(capstan, &arguments.workspace)?, arguments.json)
        }
        RootCommand::Tape(arguments) => {
            tape::run(CommandContext::load(capstan, &arguments.workspace)?, arguments.command).await
        }
        RootCommand::Skills(arguments) => {
            skills::run(&CommandContext::load(capstan, &arguments.workspace)?, arguments.command)
        }
        RootCommand::Config(arguments) => {
            config::run(&CommandContext::load(capstan, &arguments.workspace)?, &arguments.command)
        }
        RootCommand::Trust(arguments) => trust::trust(arguments),
        RootCommand::Untrust(arguments) => trust::untrust(arguments),
    }
}

/// Catches SIGXFSZ, so that a write beyond the file size limit (`ulimit -f`) fails like one to a full disk instead of
/// killing the process silently.
fn catch_file_size_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    // The handler stays installed although the stream is dropped. Child processes start with the default handler.
    if let Err(error) = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())) {
        tracing::warn!(%error, "cannot catch SIGXFSZ: reaching the file size limit will end this process");
    }
}

/// Denies other processes of this user access to this one's environment and memory, which hold API keys.
fn make_undumpable() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "other processes of this user can read the memory of this one");
    }
}

/// Starts logging to standard error, with the filter of `CAPSTAN_LOG` or warnings that the command does not report itself.
fn start_logging(preview: &CommandLinePreview) {
    let default = match preview.command.as_deref().unwrap_or_default() {
        name if SERVE_NAMES.contains(&name) => "warn",
        // Log lines would be written across the screen.
        "chat" if chat::is_screen_terminal() => "off",
        // Both report failed turns and waiting for a model themselves.
        "run" if !preview.has_json_flag => "warn,capstan_turn=off,capstan_models=off",
        "chat" => "warn,capstan_turn=off,capstan_models=off",
        _ => "warn,capstan_turn=off",
    };
    let filter = std::env::var("CAPSTAN_LOG").unwrap_or_else(|_| default.to_owned());
    let filter = tracing_subscriber::EnvFilter::try_new(&filter).unwrap_or_else(|error| {
        stderr_line!("warning: CAPSTAN_LOG is not valid ({error}); using `warn`");
        tracing_subscriber::EnvFilter::new("warn")
    });
    let stderr = || SharedTty::standard().note_writer(std::io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_target(false);
    // Reporting a failed write of the log would write to the same standard error, and panic.
    log.log_internal_errors(false).init();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::{Command, CommandFactory as _, FromArgMatches as _};

    use super::{GlobalOptions, RootCommand, requested_command};
    use crate::Capstan;
    use crate::builtin::BuiltinPlugin;

    fn command_line() -> Command {
        let capstan = Arc::new(Capstan::builder().build());
        BuiltinPlugin::command_catalog(&capstan).add_to(GlobalOptions::command())
    }

    #[test]
    fn usage_hint_names_the_longest_known_command() {
        let command_line = command_line();
        let requested = |line: &str| requested_command(&command_line, line.split_whitespace().map(Into::into));
        assert_eq!(requested("run a b"), "capstan run");
        assert_eq!(requested("--nonsense tape show --limit x"), "capstan tape show");
        assert_eq!(requested("gateway --channel"), "capstan serve");
        assert_eq!(requested("nonsense run"), "capstan");
    }

    #[test]
    fn h08_workspace_precedes_or_follows_the_command() {
        for line in
            ["capstan -w w hooks", "capstan hooks -w w", "capstan hooks --workspace w", "capstan --workspace w hooks"]
        {
            let matches = command_line().get_matches_from(line.split_whitespace());
            let RootCommand::Hooks(arguments) = RootCommand::from_arg_matches(&matches).unwrap() else {
                panic!("{line}")
            };
            assert_eq!(arguments.workspace.path.as_deref(), Some(std::path::Path::new("w")), "{line}");
        }
    }

    #[test]
    fn command_line_definition_is_consistent() {
        command_line().debug_assert();
    }
}
