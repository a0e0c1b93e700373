//! Context of a command: workspace, configuration, output, and a host.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use capstan_protocol::{Event, JsonObject, OutboundMessage, Outcome, RunId, SessionId};
use clap::ArgMatches;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::BoxError;

/// Loads the context of a command. Implemented by the command line.
pub trait CliEnvironment: Send + Sync {
    /// Loads the context for the global options of a command line.
    fn load_context(&self, command_line: &ArgMatches) -> Result<CliContext, BoxError>;
}

/// Starts hosts. Implemented by the command line.
#[async_trait]
pub trait HostLauncher: Send + Sync {
    /// Starts a host on the store of the home, with the plugins of the distribution.
    async fn start_host(&self) -> Result<Arc<dyn CommandHost>, BoxError>;
}

/// Host that a command has started. The concrete type is that of the distribution.
#[async_trait]
pub trait CommandHost: Any + Send + Sync {
    /// Serves an event from its acceptance to its outcome. An event of the channel `cli` comes from the operator.
    async fn serve(&self, event: Event) -> Result<CommandReply, BoxError>;

    /// Stops the host. Running turns have some time to finish.
    async fn stop(&self) -> Result<(), BoxError>;
}

/// Outcome of an event that a command submitted.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandReply {
    /// Session of the event.
    pub session_id: SessionId,
    /// Run that served the event, if any.
    pub run_id: Option<RunId>,
    /// Outcome of the event.
    pub outcome: Option<Outcome>,
    /// Messages of the reply, as plugins have rendered them.
    pub messages: Vec<OutboundMessage>,
}

impl CommandReply {
    /// Text of the messages, one per line.
    pub fn text(&self) -> String {
        self.messages.iter().map(|message| message.content.text()).collect::<Vec<_>>().join("\n")
    }
}

/// Workspace and configuration of a command, its output, and a way to start a host.
///
/// Data goes to the standard output ([`print_line`](Self::print_line), [`print_json`](Self::print_json)), everything else
/// to the standard error ([`note`](Self::note)). An option `--json` prints one JSON value instead of lines.
#[derive(Clone)]
pub struct CliContext {
    workspace: PathBuf,
    home: PathBuf,
    config: JsonObject,
    settings: BTreeMap<String, String>,
    launcher: Arc<dyn HostLauncher>,
}

impl CliContext {
    /// Creates a context. `config` are the settings of the plugin, `settings` those of the host with secrets masked.
    pub fn new(
        workspace: PathBuf,
        home: PathBuf,
        config: JsonObject,
        settings: BTreeMap<String, String>,
        launcher: Arc<dyn HostLauncher>,
    ) -> Self {
        Self { workspace, home, config, settings, launcher }
    }

    /// Workspace of the command line: `--workspace`, by default the current directory.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Home directory of Capstan.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Settings of the plugin that provides the command, as in [`HookRegistrar::config`](crate::HookRegistrar::config).
    pub fn config(&self) -> &JsonObject {
        &self.config
    }

    /// Settings of the plugin as a type of its own.
    pub fn parse_config<T: DeserializeOwned>(&self) -> Result<T, BoxError> {
        Ok(serde_json::from_value(Value::Object(self.config.clone()))?)
    }

    /// Value of any setting by its full name, such as `model`, merged from all layers. Secrets are masked.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Prints a line of data. A reader that closes the pipe early is not a failure.
    pub fn print_line(&self, line: &str) -> Result<(), BoxError> {
        let mut output = io::stdout().lock();
        match writeln!(output, "{line}").and_then(|()| output.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Prints a value as JSON.
    pub fn print_json(&self, value: &impl Serialize) -> Result<(), BoxError> {
        self.print_line(&serde_json::to_string_pretty(value)?)
    }

    /// Prints a line for the user to the standard error.
    pub fn note(&self, line: &str) {
        // A failure to write has no other place to be reported.
        let _unwritten = writeln!(io::stderr(), "{line}");
    }

    /// Starts a host on the store of the home, next to other processes that use it. Its terminal channel prints nothing:
    /// the command prints the replies.
    pub async fn start_host(&self) -> Result<Arc<dyn CommandHost>, BoxError> {
        self.launcher.start_host().await
    }
}
