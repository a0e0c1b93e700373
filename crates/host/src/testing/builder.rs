//! Builder of a host in the process of the test.

use std::sync::Arc;
use std::time::Duration;

use capstan_agent::{AgentOptions, LoopOptions};
use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::contracts::{Channel, ModelProvider, Runner};
use capstan_hooks::points::{ProvideChannels, ProvideModelOptions, ProvideRunners};
use capstan_hooks::{HookDeadlines, HookRegistrar, HookRuntime, Plugin, Registry};
use capstan_models::{DemoProvider, HttpClients, Provider, ProviderOptions, WireProtocol};
use capstan_protocol::Binding;
use capstan_tape::Store;
use capstan_testing::ScriptedModel;
use tempfile::TempDir;

use super::{ClosurePlugin, TestHost};
use crate::{Host, HostOptions, LeaseOwner, SecretMasker, TrustedChannel, WorkspaceDir};

/// API key sent to the scripted model, and masked by the host.
pub const SCRIPTED_MODEL_KEY: &str = "sk-0123456789abcdef";

/// Options of the `OpenAI` provider that calls this server.
pub fn scripted_provider_options(server: &ScriptedModel) -> ProviderOptions {
    let api_keys = vec![SCRIPTED_MODEL_KEY.to_owned().into()];
    ProviderOptions { api_keys, api_base: Some(server.base_url()), ..ProviderOptions::default() }
}

/// Builder of a host in the process of the test.
///
/// Unlike in production, messages do not begin with their origin, which tests would have to compare, and a run ends before
/// a hanging tool call, so that the timeout of the run is observable.
pub struct TestHostBuilder {
    folder: Arc<TempDir>,
    store: Arc<dyn Store>,
    options: HostOptions,
    deadlines: HookDeadlines,
    host_plugins: Vec<Box<dyn Plugin>>,
    agent_plugin: Option<Box<dyn Plugin>>,
    plugins: Vec<Box<dyn Plugin>>,
    channels: Vec<Arc<dyn Channel>>,
    providers: Vec<(String, WireProtocol, ProviderOptions)>,
    binding: Option<Binding>,
    has_builtin: bool,
    has_terminal: bool,
    allows_load_failures: bool,
    agent_options: AgentOptions,
}

impl TestHostBuilder {
    pub(super) fn new(folder: Arc<TempDir>, store: Arc<dyn Store>) -> Self {
        let workspace = WorkspaceDir { path: folder.path().to_owned() };
        let mut options = HostOptions::new(workspace, "demo:".parse().expect("a model id"));
        options.trusted_channels = vec![TrustedChannel { plugin: "builtin".into(), channel: "cli".into() }];
        options.run_timeout = Duration::from_mins(10);
        options.limits.tool_timeout = Duration::from_mins(20);
        options.lease_owner = LeaseOwner::open(folder.path().join("owners")).expect("a lock file");
        Self {
            folder,
            store,
            options,
            deadlines: HookDeadlines::default(),
            host_plugins: Vec::new(),
            agent_plugin: None,
            plugins: Vec::new(),
            channels: Vec::new(),
            providers: Vec::new(),
            binding: None,
            has_builtin: true,
            has_terminal: true,
            allows_load_failures: false,
            agent_options: AgentOptions { message_context: false, ..AgentOptions::default() },
        }
    }

    /// Adds a plugin. The last plugin added is called first.
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.plugins.push(Box::new(plugin));
        self
    }

    /// Adds a plugin of the host itself, whose tools get the permissions that they declare.
    pub fn host_plugin(mut self, plugin: impl Plugin) -> Self {
        self.host_plugins.push(Box::new(plugin));
        self
    }

    /// Adds a plugin whose runner takes the place of the agent, with its id.
    pub fn agent_plugin(mut self, plugin: impl Plugin) -> Self {
        self.agent_plugin = Some(Box::new(plugin));
        self
    }

    /// Adds a plugin with this registration.
    pub fn register(self, name: &'static str, register: impl Fn(&mut HookRegistrar) + Send + Sync + 'static) -> Self {
        self.plugin(ClosurePlugin::new(name, register))
    }

    /// Puts a runner in the place of the agent, with its id.
    pub fn agent(self, runner: impl Runner) -> Self {
        let runner: Arc<dyn Runner> = Arc::new(runner);
        self.agent_plugin(ClosurePlugin::new("runner", move |hooks| {
            let runner = Arc::clone(&runner);
            hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
        }))
    }

    /// Adds a channel besides the terminal.
    pub fn channel<C: Channel>(mut self, channel: &Arc<C>) -> Self {
        self.channels.push(Arc::clone(channel) as Arc<dyn Channel>);
        self
    }

    /// Replaces the store of the environment.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    /// Uses the scripted model, as `openai:scripted`, in place of the demo model.
    pub fn scripted_model(self, server: &ScriptedModel) -> Self {
        let builder = self.provider("openai", WireProtocol::OpenAi, scripted_provider_options(server));
        builder.model("openai:scripted")
    }

    /// Sets the default model.
    pub fn model(mut self, model: &str) -> Self {
        self.options.model = model.parse().expect("a model id");
        self
    }

    /// Adds a model provider, or replaces the one with this name. The host masks its keys.
    pub fn provider(mut self, name: &str, wire: WireProtocol, options: ProviderOptions) -> Self {
        self.providers.retain(|(other, ..)| other != name);
        self.providers.push((name.to_owned(), wire, options));
        self
    }

    /// Sets the binding that is saved after the start.
    pub fn binding(mut self, binding: Binding) -> Self {
        self.binding = Some(binding);
        self
    }

    /// Changes the options of the host.
    pub fn options(mut self, change: impl FnOnce(&mut HostOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Sets the deadlines of hooks.
    pub fn deadlines(mut self, deadlines: HookDeadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Leaves out the built-in plugin, and with it the agent, the models and the channels.
    pub fn without_builtin(mut self) -> Self {
        self.has_builtin = false;
        self
    }

    /// Leaves out the channel of the terminal.
    pub fn without_terminal(mut self) -> Self {
        self.has_terminal = false;
        self
    }

    /// Begins each message with its origin, as in production.
    pub fn with_message_headers(mut self) -> Self {
        self.agent_options.message_context = true;
        self
    }

    /// Starts the host even if a plugin does not load.
    pub fn allow_load_failures(mut self) -> Self {
        self.allows_load_failures = true;
        self
    }

    /// Starts the host.
    pub async fn start(mut self) -> TestHost {
        use secrecy::ExposeSecret as _;
        let keys = self.providers.iter().flat_map(|(_, _, options)| &options.api_keys);
        self.options.secret_masker = SecretMasker::new(keys.map(|key| key.expose_secret().to_owned()));
        let mut registry = Registry::new();
        if self.has_builtin {
            registry.register_builtin(&self.builtin_plugin());
        }
        for plugin in self.agent_plugin.iter().chain(&self.host_plugins) {
            registry.register_builtin(plugin.as_ref());
        }
        for plugin in &self.plugins {
            registry.register(plugin.as_ref());
        }
        if !self.allows_load_failures {
            assert_eq!(registry.load_failures(), [], "every plugin loads");
        }
        let hooks = HookRuntime::new(registry, self.deadlines);
        let host = Host::start(hooks, self.store, self.options).await.expect("the host starts");
        if let Some(binding) = &self.binding {
            host.bindings().save(binding, &host.runners()).await.expect("the binding is valid");
        }
        TestHost::new(host, self.folder)
    }

    fn builtin_plugin(&self) -> ClosurePlugin {
        let terminal: Arc<dyn Channel> = Arc::new(CliChannel::new(CliPrinter::silent()));
        let terminal = self.has_terminal.then_some(terminal);
        let channels: Vec<_> = terminal.into_iter().chain(self.channels.iter().cloned()).collect();
        let loop_options =
            LoopOptions { max_steps: self.options.limits.max_steps, default_model: Some(self.options.model.clone()) };
        let (providers, has_agent) = (self.providers.clone(), self.agent_plugin.is_none());
        let agent_options = self.agent_options.clone();
        ClosurePlugin::new("builtin", move |hooks| {
            crate::builtin::register(hooks);
            let agent_options = agent_options.clone();
            if has_agent {
                capstan_agent::register(hooks, loop_options.clone(), agent_options);
            } else {
                capstan_agent::register_tools_and_prompts(hooks, agent_options);
            }
            let (channels, providers) = (channels.clone(), providers.clone());
            hooks
                .on_sync(ProvideChannels, move || Ok(Some(channels.clone())))
                .on_sync(ProvideModelOptions, move || Ok(Some(model_providers(&providers))));
        })
    }
}

/// The demo provider and the added ones.
fn model_providers(providers: &[(String, WireProtocol, ProviderOptions)]) -> Vec<Arc<dyn ModelProvider>> {
    let http = Arc::new(HttpClients::new());
    let mut all: Vec<Arc<dyn ModelProvider>> = vec![Arc::new(DemoProvider)];
    for (name, wire, options) in providers {
        all.push(Arc::new(Provider::new(name, *wire, options.clone(), Arc::clone(&http))));
    }
    all
}
