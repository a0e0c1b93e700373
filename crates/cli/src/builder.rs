//! Assembly of a distribution or an embedded host from plugins, configuration and a store.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::contracts::Channel;
use capstan_hooks::points::ProvideChannels;
use capstan_hooks::{HookDeadlines, HookRuntime, Plugin, PluginConfig, PluginRegistration, Registry};
use capstan_host::{Host, HostOptions, LeaseOwner, SecretMasker, TrustedChannel, WorkspaceDir};
use capstan_plugins::{FailedPlugin, PluginFolder, PluginHome, PluginOptions, ProcessPlugin};
use capstan_protocol::{ChannelName, Clock, JsonObject, ModelOptions, PluginName};
use capstan_tape::Store;
use serde_json::Value;

use crate::builtin::BuiltinPlugin;
use crate::command_catalog::CommandCatalog;
use crate::commands::trust::untrusted_notice;
use crate::config::{Config, ConfigError, ConfigSources};
use crate::{CommandError, home, open_files};

/// A distribution: Capstan and its plugins.
#[derive(Default)]
pub struct Capstan {
    plugins: Vec<Arc<dyn Plugin>>,
    trusted_channels: Vec<TrustedChannel>,
    deadlines: HookDeadlines,
    /// Plugins that are installed in a home, read once.
    installed: Mutex<BTreeMap<PathBuf, Arc<[InstalledPlugin]>>>,
    /// Registrations of the plugins, by their position; those of installed plugins with their home.
    registrations: Mutex<BTreeMap<PluginPosition, Arc<PluginRegistration>>>,
    /// Configuration that the commands were collected with, and its workspace.
    startup_config: Mutex<Option<(PathBuf, Config)>>,
}

/// Position of a plugin: among those of the distribution, or among the installed ones of a home.
type PluginPosition = (Option<PathBuf>, usize);

/// Plugin that is installed in a home.
struct InstalledPlugin {
    plugin: Arc<dyn Plugin>,
    /// The manifest cannot be used, so that there are no settings to validate.
    has_failed: bool,
}

impl InstalledPlugin {
    fn new(folder: PluginFolder, options: &PluginOptions) -> Self {
        match folder.manifest {
            Ok(manifest) => {
                let plugin = ProcessPlugin::new(manifest, folder.path, folder.data_dir, options.clone());
                Self { plugin: Arc::new(plugin), has_failed: false }
            }
            Err(error) => {
                let plugin = FailedPlugin::new(folder.name, error.to_string());
                Self { plugin: Arc::new(plugin), has_failed: true }
            }
        }
    }
}

impl Capstan {
    /// Starts a distribution without plugins beyond the built-in one.
    pub fn builder() -> CapstanBuilder {
        CapstanBuilder::default()
    }

    /// Registers the built-in plugin, then those of the distribution in the order they were added, then the installed ones
    /// by name.
    ///
    /// `terminal` is the channel `cli`: a printer of replies or a chat screen.
    pub(crate) fn build_hooks(self: &Arc<Self>, config: &Config, terminal: &(impl Channel + Clone)) -> HookRuntime {
        let mut registry = Registry::new();
        registry.register_builtin(&BuiltinPlugin::new(config, Arc::new(terminal.clone()), Arc::clone(self)));
        for (position, plugin) in self.plugins.iter().enumerate() {
            let plugin_config = validated_config(plugin.as_ref(), config);
            registry.add(&self.register_plugin((None, position), plugin.as_ref(), plugin_config));
        }
        for (position, installed) in self.installed_plugins(config).iter().enumerate() {
            let plugin = installed.plugin.as_ref();
            let plugin_config =
                if installed.has_failed { Ok(PluginConfig::default()) } else { validated_config(plugin, config) };
            registry.add(&self.register_plugin((Some(config.home.clone()), position), plugin, plugin_config));
        }
        HookRuntime::new(registry, self.deadlines)
    }

    /// Registers a plugin once, and again only if its settings have changed since.
    fn register_plugin(
        &self,
        position: PluginPosition,
        plugin: &dyn Plugin,
        plugin_config: Result<PluginConfig, String>,
    ) -> Arc<PluginRegistration> {
        let mut registrations = self.registrations.lock().unwrap_or_else(PoisonError::into_inner);
        match registrations.get(&position) {
            Some(registration) if *registration.config() == plugin_config => Arc::clone(registration),
            _ => {
                let registration = Arc::new(PluginRegistration::register(plugin, plugin_config));
                registrations.insert(position, Arc::clone(&registration));
                registration
            }
        }
    }

    /// Enabled plugins that are installed in the home. Nothing is started.
    fn installed_plugins(&self, config: &Config) -> Arc<[InstalledPlugin]> {
        let mut homes = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            let options = PluginOptions {
                home: Some(config.home.clone()),
                cancel_grace: config.cancel_grace,
                hook_deadlines: self.deadlines,
                ..PluginOptions::default()
            };
            let folders = PluginHome::new(&config.home).plugins().into_iter().filter(|folder| folder.record.enabled);
            folders.map(|folder| InstalledPlugin::new(folder, &options)).collect()
        };
        Arc::clone(homes.entry(config.home.clone()).or_insert_with(read))
    }

    /// Settings of a plugin that has loaded; empty for the built-in one.
    pub(crate) fn plugin_config(&self, name: &PluginName, config: &Config) -> JsonObject {
        let installed = self.installed_plugins(config);
        let plugins = self.plugins.iter().chain(installed.iter().map(|installed| &installed.plugin));
        let plugin = plugins.into_iter().find(|plugin| plugin.name() == name.as_str());
        plugin.and_then(|plugin| validated_config(plugin.as_ref(), config).ok()).unwrap_or_default().settings
    }

    /// Collects the commands. Without a valid configuration no plugin can register, so that there are only the built-in
    /// commands, and the reason.
    pub(crate) fn load_commands(self: &Arc<Self>, workspace: Option<&Path>) -> (CommandCatalog, Option<CommandError>) {
        let loaded = resolve_workspace(workspace).and_then(|workspace| {
            let config = self.load_config(ConfigSources::from_process(&workspace)?)?;
            Ok((workspace, config))
        });
        match loaded {
            Ok((workspace, config)) => {
                let hooks = self.build_hooks(&config, &CliChannel::new(CliPrinter::silent()));
                *self.startup_config.lock().unwrap_or_else(PoisonError::into_inner) = Some((workspace, config));
                (CommandCatalog::from_hooks(&hooks), None)
            }
            Err(error) => (BuiltinPlugin::command_catalog(self), Some(error)),
        }
    }

    /// Configuration for a command. That of the start is used if it has the same workspace.
    pub(crate) fn command_config(&self, workspace: &Path) -> Result<Config, CommandError> {
        let startup = self.startup_config.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match startup {
            Some((of_workspace, config)) if of_workspace == workspace => Ok(config),
            _ => Ok(self.load_config(ConfigSources::from_process(workspace)?)?),
        }
    }

    /// Returns true if the distribution has plugins beyond the built-in one.
    pub(crate) fn has_plugins(&self) -> bool {
        !self.plugins.is_empty()
    }
}

fn validated_config(plugin: &dyn Plugin, config: &Config) -> Result<PluginConfig, String> {
    PluginRegistration::validate_config(plugin, |schema| config.plugin_config(plugin.name(), schema))
}

impl Capstan {
    /// Loads the configuration, with the settings of the plugins.
    pub(crate) fn load_config(&self, sources: ConfigSources) -> Result<Config, ConfigError> {
        let mut config = Config::load(sources)?;
        let schemas = self.plugin_schemas(&config);
        config.declare_plugins(schemas);
        Ok(config)
    }

    /// Schemas of the plugins' settings.
    pub(crate) fn plugin_schemas(&self, config: &Config) -> BTreeMap<String, Option<Value>> {
        let schema =
            |plugin: &dyn Plugin| catch_unwind(AssertUnwindSafe(|| plugin.config_schema())).unwrap_or_default();
        let installed = self.installed_plugins(config);
        let valid = installed.iter().filter(|installed| !installed.has_failed).map(|installed| &installed.plugin);
        let plugins = self.plugins.iter().chain(valid);
        plugins.map(|plugin| (plugin.name().to_owned(), schema(plugin.as_ref()))).collect()
    }

    /// Host options derived from a configuration. The terminal and stdio are trusted, and the channels that the
    /// distribution trusts.
    pub(crate) fn host_options(&self, config: &Config, workspace: PathBuf, owner: LeaseOwner) -> HostOptions {
        let builtin = BuiltinPlugin::trusted_channels();
        HostOptions {
            fallback_models: config.fallback_models.clone(),
            model_options: ModelOptions {
                max_tokens: config.max_tokens,
                reasoning: config.reasoning,
                ..ModelOptions::default()
            },
            max_message_bytes: config.max_message_bytes,
            run_timeout: config.run_timeout,
            cancel_grace: config.cancel_grace,
            session_wait_timeout: config.session_wait,
            delivery_stale_after: config.delivery_stale_after,
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

/// Builder of a distribution ([`CapstanBuilder::build`]) or, with [`HostBuilder`], of an embedded host.
///
/// The command line of a distribution takes its home, its workspace and its settings from the user. So an option of an
/// embedded host turns this builder into a [`HostBuilder`], which builds no distribution:
///
/// ```compile_fail
/// capstan::Capstan::builder().set("max_steps", "7").build();
/// ```
#[derive(Default)]
pub struct CapstanBuilder {
    capstan: Capstan,
}

impl CapstanBuilder {
    /// Adds a plugin. The last plugin added is called first.
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.capstan.plugins.push(Arc::new(plugin));
        self
    }

    /// Trusts a channel of a plugin: its events come from the operator. By default the events of every plugin's channel
    /// are remote, also of one that replaces the terminal.
    pub fn trust_channel(mut self, plugin: &str, channel: impl Into<ChannelName>) -> Self {
        self.capstan.trusted_channels.push(TrustedChannel { plugin: plugin.into(), channel: channel.into() });
        self
    }

    /// Sets the deadlines of hooks.
    pub fn deadlines(mut self, deadlines: HookDeadlines) -> Self {
        self.capstan.deadlines = deadlines;
        self
    }

    /// Sets the home directory, which `CAPSTAN_HOME` sets by default.
    pub fn home(self, home: impl Into<PathBuf>) -> HostBuilder {
        HostBuilder::from(self).home(home)
    }

    /// Sets the workspace, by default the current directory.
    pub fn workspace(self, workspace: impl Into<PathBuf>) -> HostBuilder {
        HostBuilder::from(self).workspace(workspace)
    }

    /// Sets the store, by default the database of the home.
    pub fn store(self, store: Arc<dyn Store>) -> HostBuilder {
        HostBuilder::from(self).store(store)
    }

    /// Sets a configuration key (`max_steps`, `channels.stdio.admission`), overriding every other layer.
    pub fn set(self, key: &str, value: &str) -> HostBuilder {
        HostBuilder::from(self).set(key, value)
    }

    /// Sets the clock, by default the system clock.
    pub fn clock(self, clock: Clock) -> HostBuilder {
        HostBuilder::from(self).clock(clock)
    }

    /// Sets the terminal channel, by default one that prints nothing.
    pub fn cli(self, cli: CliChannel) -> HostBuilder {
        HostBuilder::from(self).cli(cli)
    }

    /// Builds the distribution, for its command line.
    pub fn build(self) -> Capstan {
        self.capstan
    }

    /// Starts a host with the environment of the command line.
    pub async fn start(self) -> Result<Host, CommandError> {
        HostBuilder::from(self).start().await
    }
}

/// Builder of an embedded host.
pub struct HostBuilder {
    distribution: CapstanBuilder,
    home: Option<PathBuf>,
    workspace: Option<PathBuf>,
    store: Option<Arc<dyn Store>>,
    settings: Vec<(String, String)>,
    clock: Option<Clock>,
    cli: Option<CliChannel>,
}

impl From<CapstanBuilder> for HostBuilder {
    fn from(distribution: CapstanBuilder) -> Self {
        Self { distribution, home: None, workspace: None, store: None, settings: Vec::new(), clock: None, cli: None }
    }
}

impl HostBuilder {
    /// Adds a plugin. The last plugin added is called first.
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.distribution = self.distribution.plugin(plugin);
        self
    }

    /// Trusts a channel of a plugin, as [`CapstanBuilder::trust_channel`] does.
    pub fn trust_channel(mut self, plugin: &str, channel: impl Into<ChannelName>) -> Self {
        self.distribution = self.distribution.trust_channel(plugin, channel);
        self
    }

    /// Sets the deadlines of hooks.
    pub fn deadlines(mut self, deadlines: HookDeadlines) -> Self {
        self.distribution = self.distribution.deadlines(deadlines);
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

    /// Trusts the workspace: its `AGENTS.md`, its skills and all of its settings are used. Same as the setting
    /// `trust_workspace`.
    pub fn trust_workspace(self) -> Self {
        self.set("trust_workspace", "true")
    }

    /// Sets the clock, by default the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the terminal channel, by default one that prints nothing.
    pub fn cli(mut self, cli: CliChannel) -> Self {
        self.cli = Some(cli);
        self
    }

    /// Starts a host. Options that were not set come from the environment, as for the command line.
    pub async fn start(self) -> Result<Host, CommandError> {
        let workspace = resolve_workspace(self.workspace.as_deref())?;
        let mut sources = ConfigSources::from_process(&workspace)?;
        if let Some(home) = self.home {
            sources.home = home;
        }
        sources.environment.extend(self.settings);
        let capstan = Arc::new(self.distribution.build());
        let mut config = capstan.load_config(sources)?;
        if let Some(clock) = &self.clock {
            config.providers.iter_mut().for_each(|provider| provider.settings.clock = clock.clone());
        }
        let cli = self.cli.unwrap_or_else(|| CliChannel::new(CliPrinter::silent()));
        let hooks = capstan.build_hooks(&config, &cli);
        if let Some(notice) = untrusted_notice(&config, &workspace) {
            tracing::warn!("{notice}");
        }
        for line in config.unprovided_channels(&provided_channels(&hooks)).into_iter().chain(config.unknown_plugins()) {
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

#[cfg(test)]
#[path = "builder_tests.rs"]
mod tests;
