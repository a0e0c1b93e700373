//! Commands of the command line: `capstan NAME ARGUMENTS`.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use clap::builder::Resettable;
use clap::{ArgMatches, Args, Command};
use futures::future::LocalBoxFuture;

use super::{CliContext, CliEnvironment};
use crate::BoxError;

/// Function that runs a command. Its future stays on the thread of the command line.
type CliCommandHandler = Arc<dyn Fn(CliInvocation) -> LocalBoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// Command of the command line, with its arguments and the function that runs it.
///
/// Built-in commands are of this type too. `--workspace` is a global option, which no command defines itself. A command
/// that fails returns an error; a [`clap::Error`] is reported as a usage error.
///
/// # Example
///
/// ```
/// use capstan_hooks::clap::{self, Arg, Command, value_parser};
/// use capstan_hooks::contracts::CliCommand;
///
/// let definition = Command::new("forecast")
///     .about("Print the forecast")
///     .arg(Arg::new("days").long("days").value_parser(value_parser!(u32)).default_value("3"));
/// let command = CliCommand::new(definition, |invocation| async move {
///     let context = invocation.load_context()?;
///     let days = invocation.arguments().get_one::<u32>("days").copied().unwrap_or_default();
///     context.print_line(&format!("{days} days of sun over {}", context.workspace().display()))
/// });
/// assert_eq!(command.name(), "forecast");
/// ```
#[derive(Clone)]
pub struct CliCommand {
    definition: Command,
    run: CliCommandHandler,
}

impl CliCommand {
    /// Creates a command from its definition: name, help and arguments.
    pub fn new<F, Fut>(definition: Command, run: F) -> Self
    where
        F: Fn(CliInvocation) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + 'static,
    {
        Self { definition, run: Arc::new(move |invocation| Box::pin(run(invocation))) }
    }

    /// Creates a command whose arguments are the fields of `A`, a type with `#[derive(clap::Args)]`.
    pub fn with_args<A, F, Fut>(definition: Command, run: F) -> Self
    where
        A: Args + 'static,
        F: Fn(A, CliContext) -> Fut + Send + Sync + Clone + 'static,
        Fut: Future<Output = Result<(), BoxError>> + 'static,
    {
        // The help of the type would replace that of the definition.
        let about = Resettable::from(definition.get_about().cloned());
        let long_about = Resettable::from(definition.get_long_about().cloned());
        let definition = A::augment_args(definition).about(about).long_about(long_about);
        Self::new(definition, move |invocation| {
            let run = run.clone();
            async move {
                let arguments = A::from_arg_matches(invocation.arguments())?;
                run(arguments, invocation.load_context()?).await
            }
        })
    }

    /// Name of the command.
    pub fn name(&self) -> &str {
        self.definition.get_name()
    }

    /// Definition of the command: name, help and arguments.
    pub fn definition(&self) -> &Command {
        &self.definition
    }

    /// Changes the definition of the command.
    pub fn map_definition(self, change: impl FnOnce(Command) -> Command) -> Self {
        Self { definition: change(self.definition), ..self }
    }

    /// Runs the command.
    pub async fn run(&self, invocation: CliInvocation) -> Result<(), BoxError> {
        (self.run)(invocation).await
    }
}

impl fmt::Debug for CliCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CliCommand").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// One use of a command: the parsed command line, and the environment of the command.
pub struct CliInvocation {
    command_line: ArgMatches,
    environment: Arc<dyn CliEnvironment>,
}

impl CliInvocation {
    /// Creates an invocation of the command that `command_line` names.
    pub fn new(command_line: ArgMatches, environment: Arc<dyn CliEnvironment>) -> Self {
        Self { command_line, environment }
    }

    /// Whole command line: the global options, with the command as its subcommand.
    pub fn command_line(&self) -> &ArgMatches {
        &self.command_line
    }

    /// Arguments of the command.
    pub fn arguments(&self) -> &ArgMatches {
        self.command_line.subcommand().map_or(&self.command_line, |(_, arguments)| arguments)
    }

    /// Loads the workspace and the configuration. Fails if either cannot be used.
    pub fn load_context(&self) -> Result<CliContext, BoxError> {
        self.environment.load_context(&self.command_line)
    }
}
