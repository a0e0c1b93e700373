//! The command line: arguments, logging, exit codes and the dispatch to commands.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use capstan_channels::SharedTty;
use capstan_protocol::{ErrorCode, ExitClass};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::commands::{
    self, CommandContext, WorkspaceFlag, bindings, chat, config, doctor, events, hooks, onboard, run, runners, runs,
    serve, skills, state, store, tape,
};
use crate::runtime::SessionRuntime;
use crate::{Capstan, CommandError, init_process, open_files};

/// Time that blocked threads get to end after a command has finished.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// A self-hosted runtime for agents: every conversation is a tape, every stage of a turn is a hook.
#[derive(Parser)]
#[command(name = "capstan", version, about, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: RootCommand,
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
    /// Inspect and edit the stored state of runners
    State(WorkspaceCommand<state::StateCommand>),
    /// Back up and migrate the store
    Store(WorkspaceCommand<store::StoreCommand>),
    /// List the hooks, their aggregation, and their implementations in call order
    Hooks(hooks::HooksArgs),
    /// Inspect, search, export, import and fork tapes
    Tape(WorkspaceCommand<tape::TapeCommand>),
    /// List the skills of the agent and check for invalid ones
    Skills(WorkspaceCommand<skills::SkillsCommand>),
    /// Show the configuration
    Config(WorkspaceCommand<config::ConfigCommand>),
    /// Run a command of a plugin
    #[command(external_subcommand)]
    Plugin(Vec<OsString>),
}

// A group of commands that share `--workspace`. Its help text is that of the `RootCommand` variant, so no doc comment here.
#[derive(Args)]
struct WorkspaceCommand<C: Subcommand> {
    #[command(subcommand)]
    command: C,
    #[command(flatten)]
    workspace: WorkspaceFlag,
}

impl Capstan {
    /// Runs the command line with the arguments of this process.
    pub fn main(self) -> ExitCode {
        let command = match CommandLine::try_parse() {
            Ok(line) => line.command,
            Err(error) => return print_usage(&error),
        };
        start_logging(&command);
        make_undumpable();
        if init_process::is_init_process() && matches!(command, RootCommand::Serve(_)) {
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
        let executed = runtime.block_on(async {
            catch_file_size_signal();
            execute(&self, command).await
        });
        runtime.shut_down(RUNTIME_SHUTDOWN_TIMEOUT);
        match executed {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => report_failure(&failure),
        }
    }
}

fn report_failure(failure: &CommandError) -> ExitCode {
    stderr_line!("{failure}");
    failure.exit.into()
}

/// Prints a usage error, or the help or version text, which clap returns as errors too.
fn print_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let message = error.render().to_string();
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        let message = message.trim_end().trim_end_matches("For more information, try '--help'.").trim_end();
        let hint = format!("run `{} --help` for usage", requested_command(std::env::args_os().skip(1)));
        return report_failure(&CommandError::new(ErrorCode::Usage, message).with_hint(&hint));
    }
    // A failure to print has no other place to be reported.
    let _unprinted = error.print();
    if error.use_stderr() { ExitClass::Usage.into() } else { ExitCode::SUCCESS }
}

/// The longest known command that the arguments name, such as `capstan tape show`.
fn requested_command(arguments: impl Iterator<Item = OsString>) -> String {
    let mut command = &CommandLine::command();
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

async fn execute(capstan: &Capstan, command: RootCommand) -> Result<(), CommandError> {
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
        RootCommand::Plugin(words) => {
            let context = CommandContext::load(capstan, &WorkspaceFlag { path: None })?;
            commands::run_plugin_command(&context, words).await
        }
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
fn start_logging(command: &RootCommand) {
    let default = match command {
        RootCommand::Serve(_) => "warn",
        // Log lines would be written across the screen.
        RootCommand::Chat(_) if chat::is_screen_terminal() => "off",
        // Both report failed turns and waiting for a model themselves.
        RootCommand::Run(run) if !run.json => "warn,capstan_turn=off,capstan_models=off",
        RootCommand::Chat(_) => "warn,capstan_turn=off,capstan_models=off",
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
    use clap::CommandFactory as _;

    use super::{CommandLine, requested_command};

    #[test]
    fn usage_hint_names_the_longest_known_command() {
        let requested = |line: &str| requested_command(line.split_whitespace().map(Into::into));
        assert_eq!(requested("run a b"), "capstan run");
        assert_eq!(requested("--nonsense tape show --limit x"), "capstan tape show");
        assert_eq!(requested("gateway --channel"), "capstan serve");
        assert_eq!(requested("nonsense run"), "capstan");
    }

    #[test]
    fn command_line_definition_is_consistent() {
        CommandLine::command().debug_assert();
    }
}
