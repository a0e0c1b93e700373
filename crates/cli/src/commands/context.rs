//! Arguments and state shared by the commands.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::HookRuntime;
use clap::Args;

use crate::config::Config;
use crate::{Capstan, CommandError, builder};

#[derive(Args)]
pub(crate) struct WorkspaceFlag {
    /// Workspace directory [default: current directory]
    // Needs its own id: as a global flag it would share the id of any argument named `path`.
    #[arg(id = "workspace", short = 'w', long, value_name = "DIR", global = true)]
    pub(crate) path: Option<PathBuf>,
}

/// Maximum length of the name of a session, a chat, a sender or an event.
const MAX_CLI_NAME_BYTES: usize = 1024;

/// Parses a name: one line of text that is not blank.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("must not be empty".to_owned());
    }
    if text.len() > MAX_CLI_NAME_BYTES {
        return Err(format!("must not be longer than {MAX_CLI_NAME_BYTES} bytes"));
    }
    if text.contains(char::is_control) {
        return Err("must not contain control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// The distribution, the configuration and the workspace a command runs with.
pub(crate) struct CommandContext<'a> {
    pub(crate) capstan: &'a Arc<Capstan>,
    pub(crate) config: Config,
    pub(crate) workspace: PathBuf,
}

impl<'a> CommandContext<'a> {
    pub(crate) fn load(capstan: &'a Arc<Capstan>, workspace: &WorkspaceFlag) -> Result<Self, CommandError> {
        let workspace = builder::resolve_workspace(workspace.path.as_deref())?;
        let config = capstan.command_config(&workspace)?;
        for name in config.unknown_variables() {
            stderr_line!("warning: {name} does not match any setting (`capstan config show` lists them)");
        }
        Ok(Self { capstan, config, workspace })
    }

    /// Registers the hooks, for commands that run no turn.
    pub(crate) fn build_hooks(&self) -> HookRuntime {
        self.capstan.build_hooks(&self.config, &CliChannel::new(CliPrinter::silent()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use clap::{Parser, Subcommand};

    use super::WorkspaceFlag;

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
    fn workspace_flag_does_not_share_the_value_of_a_path_argument() {
        let TestCommandLine { workspace, command: CopyCommand::Copy { path } } =
            TestCommandLine::parse_from(["x", "copy", "a"]);
        assert_eq!((workspace.path, path.as_path()), (None, Path::new("a")));
        let TestCommandLine { workspace, command: CopyCommand::Copy { path } } =
            TestCommandLine::parse_from(["x", "copy", "a", "--workspace", "w"]);
        assert_eq!((workspace.path.as_deref(), path.as_path()), (Some(Path::new("w")), Path::new("a")));
    }
}
