//! Assembly of a distribution or an embedded host from plugins, configuration and a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::contracts::Channel;
use capstan_hooks::points::ProvideChannels;
use capstan_hooks::{HookDeadlines, HookRuntime, Plugin, Registry};
use capstan_host::{Host, HostOptions, LeaseOwner, SecretMasker, TrustedChannel, WorkspaceDir};
use capstan_protocol::{ChannelName, Clock, ModelOptions};
use capstan_tape::Store;

use crate::builtin::BuiltinPlugin;
use crate::config::{Config, ConfigSources};
use crate::{CommandError, home, open_files};

/// A distribution: Capstan and its plugins.
pub struct Capstan {
    plugins: Vec<Box<dyn Plugin>>,
    trusted_channels: Vec<TrustedChannel>,
}

impl Capstan {
    /// Starts a distribution without plugins beyond the built-in one.
    pub fn builder() -> CapstanBuilder {
        CapstanBuilder::default()
    }

    /// Registers the built-in plugin, then the others in the order they were added.
    ///
    /// `terminal` is the channel `cli`: a printer of replies or a chat screen.
    pub(crate) fn build_hooks(
        &self,
        config: &Config,
        terminal: &(impl Channel + Clone),
        deadlines: HookDeadlines,
    ) -> HookRuntime {
        let mut registry = Registry::new();
        registry.register_builtin(&BuiltinPlugin::new(config, Arc::new(terminal.clone())));
        for plugin in &self.plugins {
            registry.register(plugin.as_ref());
        }
        HookRuntime::new(registry, deadlines)
    }
}

impl Capstan {
    /// Host options derived from a configuration. The terminal and stdio are trusted, and the channels that the
    /// distribution trusts.
    pub(crate) fn host_options(&self, config: &Config, workspace: PathBuf, owner: LeaseOwner) -> HostOptions {
        let builtin = BuiltinPlugin::trusted_channels();
        HostOptions {
            fallback_models: config.fallback_models.clone(),
            model_options: ModelOptions { max_tokens: config.max_tokens, reasoning: config.reasoning },
            max_message_bytes: config.max_message_bytes,
            run_timeout: config.run_timeout,
            session_wait_timeout: config.session_wait,
            intake_overrides: config.intakes.clone(),
            trusted_channels: builtin.into_iter().chain(self.trusted_channels.iter().cloned()).collect(),
            max_queued_events: config.session_queue,
            max_active_turns: config.max_active_turns.unwrap_or_else(open_files::default_active_turns),
            limits: config.limits,
            secret_masker: SecretMasker::new(config.secrets()),
            lease_owner: owner,
            ..HostOptions::new(WorkspaceDir { path: workspace }, config.model.clone())
        }
    }
}

/// Builder of a distribution ([`CapstanBuilder::build`]) or of an embedded host ([`CapstanBuilder::start`]).
///
/// Every option except the plugins and the trusted channels applies to the embedded host only.
#[derive(Default)]
pub struct CapstanBuilder {
    plugins: Vec<Box<dyn Plugin>>,
    trusted_channels: Vec<TrustedChannel>,
    home: Option<PathBuf>,
    workspace: Option<PathBuf>,
    store: Option<Arc<dyn Store>>,
    settings: Vec<(String, String)>,
    clock: Option<Clock>,
    deadlines: HookDeadlines,
    cli: Option<CliChannel>,
}

impl CapstanBuilder {
    /// Adds a plugin. The last plugin added is called first.
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.plugins.push(Box::new(plugin));
        self
    }

    /// Trusts a channel of a plugin: its events come from the operator. By default the events of every plugin's channel
    /// are remote, also of one that replaces the terminal.
    pub fn trust_channel(mut self, plugin: &str, channel: impl Into<ChannelName>) -> Self {
        self.trusted_channels.push(TrustedChannel { plugin: plugin.into(), channel: channel.into() });
        self
    }

    /// Sets the home directory, which `CAPSTAN_HOME` sets by default.
    pub fn home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Sets the workspace, by default the current directory.
    pub fn workspace(mut self, workspace: impl Into<PathBuf>) -> Self {
        self.workspace = Some(workspace.into());
        self
    }

    /// Sets the store, by default the database of the home.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets a configuration key (`max_steps`, `channels.stdio.admission`), overriding every other layer.
    pub fn set(mut self, key: &str, value: &str) -> Self {
        let key = key.to_uppercase().replace('.', "__");
        self.settings.push((format!("CAPSTAN_{key}"), value.to_owned()));
        self
    }

    /// Sets the clock, by default the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the deadlines of hooks.
    pub fn deadlines(mut self, deadlines: HookDeadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Sets the terminal channel, by default one that prints nothing.
    pub fn cli(mut self, cli: CliChannel) -> Self {
        self.cli = Some(cli);
        self
    }

    /// Builds the distribution, for its command line.
    pub fn build(self) -> Capstan {
        Capstan { plugins: self.plugins, trusted_channels: self.trusted_channels }
    }

    /// Starts a host. Options that were not set come from the environment, as for the command line.
    pub async fn start(self) -> Result<Host, CommandError> {
        let workspace = resolve_workspace(self.workspace.as_deref())?;
        let mut sources = ConfigSources::from_process(&workspace)?;
        if let Some(home) = self.home {
            sources.home = home;
        }
        sources.environment.extend(self.settings);
        let mut config = Config::load(sources)?;
        if let Some(clock) = &self.clock {
            config.providers.iter_mut().for_each(|provider| provider.settings.clock = clock.clone());
        }
        let cli = self.cli.unwrap_or_else(|| CliChannel::new(CliPrinter::silent()));
        let capstan = Capstan { plugins: self.plugins, trusted_channels: self.trusted_channels };
        let hooks = capstan.build_hooks(&config, &cli, self.deadlines);
        for line in config.unprovided_channels(&provided_channels(&hooks)) {
            tracing::warn!("{line}");
        }
        let (store, owner) = match self.store {
            Some(store) => (store, LeaseOwner::anonymous()),
            None => home::open_store_and_lock(&config)?,
        };
        let mut options = capstan.host_options(&config, workspace, owner);
        if let Some(clock) = self.clock {
            options.clock = clock;
        }
        Ok(Host::start(hooks, store, options).await?)
    }
}

/// Resolves the workspace, by default the current directory, which must exist.
pub(crate) fn resolve_workspace(path: Option<&Path>) -> Result<PathBuf, CommandError> {
    let path = path.unwrap_or_else(|| Path::new("."));
    let resolved = path.canonicalize().map_err(|error| CommandError::workspace_error(path, &error.to_string()))?;
    if resolved.is_dir() { Ok(resolved) } else { Err(CommandError::workspace_error(path, "not a directory")) }
}

/// Names of the channels that plugins provide.
pub(crate) fn provided_channels(hooks: &HookRuntime) -> Vec<ChannelName> {
    let provided = hooks.collect_provided::<ProvideChannels, Arc<dyn Channel>>(|channel| channel.name().to_string());
    provided.iter().map(|channel| channel.name()).collect()
}
