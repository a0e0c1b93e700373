//! Putting a host together.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::contracts::Channel;
use capstan_hooks::points::ProvideChannels;
use capstan_hooks::{HookDeadlines, HookRuntime, Plugin, Registry};
use capstan_host::{Host, HostOptions, LeaseOwner, SecretMasker, WorkspaceDir};
use capstan_protocol::{ChannelName, Clock, ModelOptions};
use capstan_store::SqliteStore;
use capstan_tape::Store;

use crate::builtin::BuiltinPlugin;
use crate::config::{Config, ConfigSources};
use crate::{CommandError, command_line};

/// Capstan with its plugins.
pub struct Capstan {
    plugins: Vec<Box<dyn Plugin>>,
}

impl Capstan {
    /// Puts a distribution together.
    pub fn builder() -> CapstanBuilder {
        CapstanBuilder::default()
    }

    /// The whole command line, with the arguments of this process.
    pub fn main(self) -> ExitCode {
        command_line::main(&self)
    }

    /// Everything that is registered under a configuration: the built-in plugin, then the others in their order.
    /// The terminal is the channel that prints a reply, or a chat.
    pub(crate) fn build_hooks(
        &self,
        config: &Config,
        terminal: &(impl Channel + Clone),
        deadlines: HookDeadlines,
    ) -> HookRuntime {
        let mut registry = Registry::new();
        registry.register(&BuiltinPlugin::new(config, Arc::new(terminal.clone())));
        for plugin in &self.plugins {
            registry.register(plugin.as_ref());
        }
        HookRuntime::new(registry, deadlines)
    }
}

/// Puts a distribution together: plugins, and for a host to embed, where it lives and what it keeps.
#[derive(Default)]
pub struct CapstanBuilder {
    plugins: Vec<Box<dyn Plugin>>,
    home: Option<PathBuf>,
    workspace: Option<PathBuf>,
    store: Option<Arc<dyn Store>>,
    settings: Vec<(String, String)>,
    clock: Option<Clock>,
    deadlines: HookDeadlines,
    cli: Option<CliChannel>,
}

impl CapstanBuilder {
    /// Adds a plugin. The last one added is asked first.
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.plugins.push(Box::new(plugin));
        self
    }

    /// Where Capstan keeps what it must not lose, in place of `CAPSTAN_HOME`.
    pub fn home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// The workspace, in place of the current directory.
    pub fn workspace(mut self, workspace: impl Into<PathBuf>) -> Self {
        self.workspace = Some(workspace.into());
        self
    }

    /// The store, in place of the database of the home.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets a setting by its name (`max_steps`, `channels.stdio.admission`), over every other layer.
    pub fn set(mut self, key: &str, value: &str) -> Self {
        let key = key.to_uppercase().replace('.', "__");
        self.settings.push((format!("CAPSTAN_{key}"), value.to_owned()));
        self
    }

    /// The clock, in place of the machine's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// How long hooks may take.
    pub fn deadlines(mut self, deadlines: HookDeadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// The terminal channel, in place of one that prints nothing.
    pub fn cli(mut self, cli: CliChannel) -> Self {
        self.cli = Some(cli);
        self
    }

    /// The distribution, for its command line.
    pub fn build(self) -> Capstan {
        Capstan { plugins: self.plugins }
    }

    /// A running host. What is not said comes from the environment, as for the command line.
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
        let hooks = Capstan { plugins: self.plugins }.build_hooks(&config, &cli, self.deadlines);
        for line in config.unprovided_channels(&provided_channels(&hooks)) {
            tracing::warn!("{line}");
        }
        let (store, owner) = match self.store {
            Some(store) => (store, LeaseOwner::anonymous()),
            None => open_home_store(&config)?,
        };
        let mut settings = host_options(&config, workspace, owner);
        if let Some(clock) = self.clock {
            settings.clock = clock;
        }
        Ok(Host::start(hooks, store, settings).await?)
    }
}

/// The workspace a path means; it must be there.
pub(crate) fn resolve_workspace(path: Option<&Path>) -> Result<PathBuf, CommandError> {
    let path = path.unwrap_or_else(|| Path::new("."));
    let resolved = path.canonicalize().map_err(|error| CommandError::workspace_error(path, &error.to_string()))?;
    if resolved.is_dir() { Ok(resolved) } else { Err(CommandError::workspace_error(path, "it is not a directory")) }
}

/// The database of the home, made when it is not there, and this process as an owner of leases.
pub(crate) fn open_home_store(config: &Config) -> Result<(Arc<dyn Store>, LeaseOwner), CommandError> {
    Ok((open_store(config)?, open_process_lock(config)?))
}

/// This process, as others of this home can tell that it is alive.
pub(crate) fn open_process_lock(config: &Config) -> Result<LeaseOwner, CommandError> {
    Ok(LeaseOwner::open(process_locks_dir(&config.home))?)
}

/// Where the processes of a home show that they live.
pub(crate) fn process_locks_dir(home: &Path) -> PathBuf {
    home.join("owners")
}

/// The database of the home, made when it is not there.
pub(crate) fn open_store(config: &Config) -> Result<Arc<dyn Store>, CommandError> {
    create_home(&config.home).map_err(|error| CommandError::home_error(&config.home, &error))?;
    Ok(Arc::new(SqliteStore::open(database_path(config))?))
}

/// Makes the home where it is not there, so that it is still there after a power cut.
pub(crate) fn create_home(home: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = home.ancestors().take_while(|folder| !folder.exists()).collect();
    // Conversations are nobody else's business.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    for parent in missing.into_iter().filter_map(Path::parent) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        // Not every file system can, and not every user may.
        if let Err(error) = File::open(parent).and_then(|folder| folder.sync_all()) {
            tracing::debug!(folder = %parent.display(), %error, "a folder was not synced");
        }
    }
    Ok(())
}

/// The database of the home, which is there, for a command that may only want to read it.
pub(crate) fn open_existing_store(config: &Config) -> Result<Arc<dyn Store>, CommandError> {
    Ok(Arc::new(SqliteStore::open_with_read_only_fallback(database_path(config))?))
}

/// Where the database of the home is.
pub(crate) fn database_path(config: &Config) -> PathBuf {
    database_path_in(&config.home)
}

/// Where the database of a home is.
pub(crate) fn database_path_in(home: &Path) -> PathBuf {
    home.join("capstan.db")
}

/// Where the tapes of a home are that are kept as files.
pub(crate) fn tapes_dir_in(home: &Path) -> PathBuf {
    home.join("tapes")
}

/// The channels that are provided.
pub(crate) fn provided_channels(hooks: &HookRuntime) -> Vec<ChannelName> {
    let provided = hooks.collect_provided::<ProvideChannels, Arc<dyn Channel>>(|channel| channel.name().to_string());
    provided.iter().map(|channel| channel.name()).collect()
}

/// What a host is set to under a configuration.
pub(crate) fn host_options(config: &Config, workspace: PathBuf, owner: LeaseOwner) -> HostOptions {
    HostOptions {
        workspace: WorkspaceDir { path: workspace },
        model: config.model.clone(),
        fallback_models: config.fallback_models.clone(),
        model_options: ModelOptions { max_tokens: config.max_tokens, reasoning: config.reasoning },
        max_message_bytes: config.max_message_bytes,
        run_timeout: config.run_timeout,
        session_wait_timeout: config.session_wait,
        intake_overrides: config.intakes.clone(),
        max_queued_events: config.session_queue,
        limits: config.limits,
        secret_masker: SecretMasker::new(config.secrets()),
        lease_owner: owner,
        clock: Clock::system(),
    }
}
