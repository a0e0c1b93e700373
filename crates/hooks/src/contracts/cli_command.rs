//! Subcommands of the command line that a plugin adds.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::BoxError;

/// Function that runs a command with its arguments.
type CliCommandHandler = Arc<dyn Fn(Vec<String>) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// Subcommand of the command line: `capstan NAME ARGUMENTS`.
#[derive(Clone)]
pub struct CliCommand {
    /// Name of the command.
    pub name: String,
    /// One line of help.
    pub about: String,
    run: CliCommandHandler,
}

impl CliCommand {
    /// Creates a command; `run` gets the arguments after its name.
    pub fn new<F, Fut>(name: impl Into<String>, about: impl Into<String>, run: F) -> Self
    where
        F: Fn(Vec<String>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self { name: name.into(), about: about.into(), run: Arc::new(move |arguments| Box::pin(run(arguments))) }
    }

    /// Runs the command.
    pub async fn run(&self, arguments: Vec<String>) -> Result<(), BoxError> {
        (self.run)(arguments).await
    }
}

impl fmt::Debug for CliCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CliCommand").field("name", &self.name).finish_non_exhaustive()
    }
}
