//! The command line: what can be asked, and how the answer is given.

use capstan_protocol::{ErrorCode, ExitClass};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use capstan_channels::{CliChannel, CliPrinter, SharedTty};
use capstan_hooks::{HookDeadlines, HookRuntime};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::commands::{self, bindings, chat, events, onboard, runners, runs, skills, state, store, tape};
use crate::config::{Config, ConfigSources};
use crate::runtime::SessionRuntime;
use crate::{Capstan, CommandError, builder};

/// How long threads that are blocked may take to end when a command is over.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// A self-hosted agent host: every conversation is a tape, every stage of a turn is a hook.
#[derive(Parser)]
#[command(name = "capstan", version, about, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: RootCommand,
}

#[derive(Subcommand)]
enum RootCommand {
    /// Runs one turn and prints the reply.
    Run(RunArgs),
    /// Talks with the agent, on a screen or line by line.
    ///
    /// Where the input or the output is no terminal, each line is a message, and the replies are plain text.
    Chat(chat::ChatArgs),
    /// Asks which model to use and for its key, tries them, and keeps them.
    Onboard(onboard::OnboardArgs),
    /// Looks whether all is well, and says what to do where it is not.
    ///
    /// Exits with 0 when nothing is wrong, warnings included, and with 1 when there is a problem.
    Doctor(DoctorArgs),
    /// Feeds events to the host.
    Events(WorkspaceCommand<events::EventsCommand>),
    /// Shows and changes which runner serves which events, and with what.
    Bindings(WorkspaceCommand<bindings::BindingsCommand>),
    /// Shows who can serve events.
    Runners(WorkspaceCommand<runners::RunnersCommand>),
    /// Shows what ran, and ends what runs.
    Runs(WorkspaceCommand<runs::RunsCommand>),
    /// Shows, changes and clears what runners keep in the host.
    State(WorkspaceCommand<state::StateCommand>),
    /// Backs the store up, and brings it to the newest version.
    Store(WorkspaceCommand<store::StoreCommand>),
    /// Listens on channels and answers, until they end or it is told to.
    #[command(visible_alias = "gateway")]
    Serve(ServeArgs),
    /// Lists the hooks, how each aggregates, and who implements it in the order they run.
    Hooks(HooksArgs),
    /// Shows, searches, exports and imports tapes.
    Tape(WorkspaceCommand<tape::TapeCommand>),
    /// Shows the skills the agent can use, and says what is wrong with those it cannot.
    Skills(WorkspaceCommand<skills::SkillsCommand>),
    /// Shows the configuration.
    Config(WorkspaceCommand<ConfigCommand>),
    /// A command that a plugin adds.
    #[command(external_subcommand)]
    Plugin(Vec<OsString>),
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// The message; - reads it from the standard input. A line that starts with a comma is a command (try ,help).
    pub(crate) message: String,
    /// The session; by default CHANNEL:CHAT.
    #[arg(long, value_name = "ID", value_parser = parse_name)]
    pub(crate) session_id: Option<String>,
    /// The channel it comes from and the reply goes to.
    #[arg(long, value_name = "NAME", default_value = "cli")]
    pub(crate) channel: String,
    /// The chat within the channel.
    #[arg(long, value_name = "ID", default_value = "local", value_parser = parse_name)]
    pub(crate) chat_id: String,
    /// Who says it.
    #[arg(long, value_name = "ID", default_value = "human", value_parser = parse_name)]
    pub(crate) sender_id: String,
    /// Which message it is: the same id again has no second turn, and gets the answer that was kept.
    #[arg(long, value_name = "ID", value_parser = parse_name)]
    pub(crate) event_id: Option<String>,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlag,
    /// Prints one JSON object: `session_id`, `run_id`, output, outbounds, usage, outcome.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// A channel to listen on; may be given several times. `all` is every one that can, `!NAME` all but this one.
    #[arg(long = "channel", value_name = "NAME")]
    pub(crate) channels: Vec<String>,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlag,
}

#[derive(Args)]
pub(crate) struct WorkspaceFlag {
    /// The workspace; by default the current directory.
    // An id of its own: as a global flag it would share that of an argument of the same name.
    #[arg(id = "workspace", long, value_name = "DIR", global = true)]
    pub(crate) path: Option<PathBuf>,
}

#[derive(Args)]
struct HooksArgs {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    workspace: WorkspaceFlag,
}

#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// First mends what can be mended safely, beside running processes too.
    #[arg(long)]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlag,
}

// One of several things to do in a workspace. What it is for is said where it is named.
#[derive(Args)]
struct WorkspaceCommand<C: Subcommand> {
    #[command(subcommand)]
    command: C,
    #[command(flatten)]
    workspace: WorkspaceFlag,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Prints every setting with its value and where it came from; secrets are masked.
    Show {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
}

/// The longest name of a session, a chat, a sender or an event, in bytes.
const MAX_CLI_NAME_BYTES: usize = 1024;

/// A name as it is given: a text of one line that is not blank.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.len() > MAX_CLI_NAME_BYTES {
        return Err(format!("it has more than the {MAX_CLI_NAME_BYTES} bytes allowed"));
    }
    if text.contains(char::is_control) {
        return Err("it has control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// What a command works with.
pub(crate) struct CommandContext<'a> {
    pub(crate) capstan: &'a Capstan,
    pub(crate) config: Config,
    pub(crate) workspace: PathBuf,
}

impl<'a> CommandContext<'a> {
    fn load(capstan: &'a Capstan, workspace: &WorkspaceFlag) -> Result<Self, CommandError> {
        let workspace = builder::resolve_workspace(workspace.path.as_deref())?;
        let config = Config::load(ConfigSources::from_process(&workspace)?)?;
        for name in config.unknown_variables() {
            stderr_line!("warning: {name} is no setting of Capstan (`capstan config show` lists them)");
        }
        Ok(Self { capstan, config, workspace })
    }

    /// The hooks, for commands that run no turn.
    pub(crate) fn build_hooks(&self) -> HookRuntime {
        self.capstan.build_hooks(&self.config, &CliChannel::new(CliPrinter::silent()), HookDeadlines::default())
    }
}

/// Runs the command line of this process.
pub(crate) fn main(capstan: &Capstan) -> ExitCode {
    let command = match CommandLine::try_parse() {
        Ok(line) => line.command,
        // Help and version are no errors; clap knows where each is printed.
        Err(error) => return print_usage(&error),
    };
    start_logging(&command);
    make_undumpable();
    let threads = match SessionRuntime::start() {
        Ok(threads) => threads,
        Err(error) => {
            return report_failure(&CommandError::new(ErrorCode::StoreFailed, format!("cannot start: {error}")));
        }
    };
    let executed = threads.block_on(async {
        catch_file_size_signal();
        execute(capstan, command).await
    });
    threads.shut_down(RUNTIME_SHUTDOWN_TIMEOUT);
    match executed {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report_failure(&failure),
    }
}

fn report_failure(failure: &CommandError) -> ExitCode {
    stderr_line!("{failure}");
    failure.exit.into()
}

fn print_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let said = error.render().to_string();
        let said = said.strip_prefix("error: ").unwrap_or(&said);
        let said = said.trim_end().trim_end_matches("For more information, try '--help'.").trim_end();
        let hint = format!("`{} --help` shows how it is called", requested_command(std::env::args_os().skip(1)));
        return report_failure(&CommandError::new(ErrorCode::Usage, said).with_hint(&hint));
    }
    // Nothing is left to do when the terminal itself is gone.
    let _unprinted = error.print();
    if error.use_stderr() { ExitClass::Usage.into() } else { ExitCode::SUCCESS }
}

/// The command that was asked for, as far as there is one.
fn requested_command(words: impl Iterator<Item = OsString>) -> String {
    let mut command = &CommandLine::command();
    let mut asked = command.get_name().to_owned();
    for word in words {
        match command.find_subcommand(&word) {
            Some(found) => {
                asked = format!("{asked} {}", found.get_name());
                command = found;
            }
            None if word.to_string_lossy().starts_with('-') => {}
            None => break,
        }
    }
    asked
}

async fn execute(capstan: &Capstan, command: RootCommand) -> Result<(), CommandError> {
    match command {
        RootCommand::Run(arguments) => {
            commands::run(CommandContext::load(capstan, &arguments.workspace)?, arguments).await
        }
        RootCommand::Chat(arguments) => {
            chat::run_chat(CommandContext::load(capstan, &arguments.workspace)?, arguments).await
        }
        RootCommand::Onboard(arguments) => {
            onboard::run_onboard(CommandContext::load(capstan, &arguments.workspace)?, arguments).await
        }
        RootCommand::Doctor(arguments) => commands::doctor(capstan, &arguments).await,
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
            commands::serve(CommandContext::load(capstan, &arguments.workspace)?, arguments).await
        }
        RootCommand::Hooks(arguments) => {
            commands::list_hooks(&CommandContext::load(capstan, &arguments.workspace)?, arguments.json)
        }
        RootCommand::Tape(arguments) => {
            tape::run(CommandContext::load(capstan, &arguments.workspace)?, arguments.command).await
        }
        RootCommand::Skills(arguments) => {
            skills::run(&CommandContext::load(capstan, &arguments.workspace)?, arguments.command)
        }
        RootCommand::Config(arguments) => {
            let ConfigCommand::Show { json } = arguments.command;
            commands::show_config(&CommandContext::load(capstan, &arguments.workspace)?, json)
        }
        RootCommand::Plugin(words) => {
            let context = CommandContext::load(capstan, &WorkspaceFlag { path: None })?;
            commands::run_plugin_command(&context, words).await
        }
    }
}

/// What would grow a file beyond a limit (`ulimit -f`) then fails, as on a full disk, instead of ending the process
/// without a word.
fn catch_file_size_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    // It is caught for good though nobody listens. Programs that are started get their own way back.
    if let Err(error) = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())) {
        tracing::warn!(%error, "a limit on the size of files would end this process");
    }
}

/// What other processes of this user could read of this one (its environment, its memory) holds the key.
fn make_undumpable() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "other processes of this user can look into this one");
    }
}

/// Logs go to the standard error; `CAPSTAN_LOG` says how much, by default warnings of what a command does not say itself.
fn start_logging(command: &RootCommand) {
    let default = match command {
        RootCommand::Serve(_) => "warn",
        // It would be written across the screen.
        RootCommand::Chat(_) if chat::is_screen_terminal() => "off",
        // These tell themselves how a turn failed, and that a model is waited for.
        RootCommand::Run(run) if !run.json => "warn,capstan_turn=off,capstan_models=off",
        RootCommand::Chat(_) => "warn,capstan_turn=off,capstan_models=off",
        _ => "warn,capstan_turn=off",
    };
    let filter = std::env::var("CAPSTAN_LOG").unwrap_or_else(|_| default.to_owned());
    let filter = tracing_subscriber::EnvFilter::try_new(&filter).unwrap_or_else(|error| {
        stderr_line!("warning: CAPSTAN_LOG is not valid ({error}); warnings are shown");
        tracing_subscriber::EnvFilter::new("warn")
    });
    // Where the log cannot be written, to say so there would be a panic.
    let standard_error = || SharedTty::standard().note_writer(std::io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(standard_error).with_target(false);
    log.log_internal_errors(false).init();
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use clap::{CommandFactory as _, Parser, Subcommand};

    use super::{CommandLine, WorkspaceFlag, requested_command};

    #[derive(Parser)]
    struct TestCommandLine {
        #[command(flatten)]
        workspace: WorkspaceFlag,
        #[command(subcommand)]
        command: CopyCommand,
    }

    #[derive(Subcommand)]
    enum CopyCommand {
        Copy { path: PathBuf },
    }

    #[test]
    fn an_argument_that_is_a_path_is_not_the_workspace() {
        let TestCommandLine { workspace, command: CopyCommand::Copy { path } } =
            TestCommandLine::parse_from(["x", "copy", "a"]);
        assert_eq!((workspace.path, path.as_path()), (None, Path::new("a")));
        let TestCommandLine { workspace, command: CopyCommand::Copy { path } } =
            TestCommandLine::parse_from(["x", "copy", "a", "--workspace", "w"]);
        assert_eq!((workspace.path.as_deref(), path.as_path()), (Some(Path::new("w")), Path::new("a")));
    }

    #[test]
    fn whoever_asks_wrongly_is_told_where_to_read() {
        let asked = |line: &str| requested_command(line.split_whitespace().map(Into::into));
        assert_eq!(asked("run a b"), "capstan run");
        assert_eq!(asked("--nonsense tape show --limit x"), "capstan tape show");
        assert_eq!(asked("gateway --channel"), "capstan serve");
        assert_eq!(asked("nonsense run"), "capstan");
    }

    #[test]
    fn the_command_line_is_what_it_should_be() {
        CommandLine::command().debug_assert();
    }
}
