//! Environment of commands: their context, and the host that a command may start.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::BoxError;
use capstan_hooks::contracts::{CliContext, CliEnvironment, CommandHost, CommandReply, HostLauncher};
use capstan_host::{Host, IncomingEvent};
use capstan_protocol::{Event, PluginName};
use clap::{ArgMatches, FromArgMatches as _};

use crate::commands::trust::untrusted_notice;
use crate::commands::{CommandContext, WorkspaceFlag};
use crate::config::Config;
use crate::{Capstan, CommandError, home};

/// Loads the context of the commands of one plugin.
pub(crate) struct CommandEnvironment {
    pub(crate) capstan: Arc<Capstan>,
    pub(crate) plugin: PluginName,
}

impl CliEnvironment for CommandEnvironment {
    fn load_context(&self, command_line: &ArgMatches) -> Result<CliContext, BoxError> {
        let workspace = WorkspaceFlag::from_arg_matches(command_line)?;
        let CommandContext { config, workspace, .. } = CommandContext::load(&self.capstan, &workspace)?;
        let settings = config.list_settings().into_iter().filter_map(|setting| Some((setting.key, setting.value?)));
        let plugin_config = self.capstan.plugin_config(&self.plugin, &config);
        let launcher = DistributionLauncher { capstan: Arc::clone(&self.capstan), config, workspace };
        let (workspace, home) = (launcher.workspace.clone(), launcher.config.home.clone());
        Ok(CliContext::new(workspace, home, plugin_config, settings.collect(), Arc::new(launcher)))
    }
}

/// Starts hosts with the plugins of a distribution.
struct DistributionLauncher {
    capstan: Arc<Capstan>,
    config: Config,
    workspace: PathBuf,
}

#[async_trait]
impl HostLauncher for DistributionLauncher {
    async fn start_host(&self) -> Result<Arc<dyn CommandHost>, BoxError> {
        let host = self.start().await?;
        Ok(Arc::new(StartedHost(host)))
    }
}

impl DistributionLauncher {
    async fn start(&self) -> Result<Host, CommandError> {
        if let Some(notice) = untrusted_notice(&self.config, &self.workspace) {
            stderr_line!("note: {notice}");
        }
        let hooks = self.capstan.build_hooks(&self.config, &CliChannel::new(CliPrinter::silent()));
        let (store, owner) = home::open_store_and_lock(&self.config)?;
        let options = self.capstan.host_options(&self.config, self.workspace.clone(), owner);
        Ok(Host::start(hooks, store, options).await?)
    }
}

/// Host that a command has started.
pub struct StartedHost(Host);

impl StartedHost {
    /// The host behind [`CliContext::start_host`], for commands that need more than its contract, such as the tapes.
    pub fn of_command(host: &dyn CommandHost) -> Option<&Host> {
        let host: &dyn Any = host;
        host.downcast_ref::<Self>().map(|started| &started.0)
    }
}

#[async_trait]
impl CommandHost for StartedHost {
    async fn serve(&self, event: Event) -> Result<CommandReply, BoxError> {
        let is_local = event.source.as_str() == CliChannel::CHANNEL_NAME;
        let event = if is_local { IncomingEvent::trusted(event) } else { event.into() };
        let served = self.0.serve(event).await.map_err(CommandError::from)?;
        if let Some(error) = served.error {
            return Err(CommandError::from(error).into());
        }
        Ok(CommandReply {
            session_id: served.session,
            run_id: served.run_id,
            outcome: served.outcome,
            messages: served.outbounds,
        })
    }

    async fn stop(&self) -> Result<(), BoxError> {
        Ok(self.0.clone().stop().await.map_err(CommandError::from)?)
    }
}
