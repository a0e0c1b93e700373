//! Putting hosts together for tests: the built-in stages and the agent, channels of one's own, and every setting.

use std::sync::Arc;
use std::time::Duration;

use capstan::hooks::args::PromptContent;
use capstan::hooks::contracts::{Channel, FnTool, Gateway as _, ModelProvider, Tool, ToolContext};
use capstan::hooks::points::{ProvideChannels, ProvideModelOptions, ProvideTools, RunModel};
use capstan::hooks::{HookDeadlines, HookRegistrar, HookRuntime, Plugin, Registry};
use capstan::protocol::{Event, EventKey, JsonObject, ModelOptions, Outcome, ToolOutput};
use capstan::store::SqliteStore;
use capstan::tape::{MemoryStore, Store};
use capstan::{Host, ServedEvent};
use capstan_host::{HostOptions, LeaseOwner, RunLimits, SecretMasker, WorkspaceDir};
use capstan_models::{DemoProvider, HttpClients, Provider, WireProtocol};
use capstan_protocol::Clock;
use capstan_testing::{ReplyBarrier, ScriptedModel};
use serde_json::json;
use tempfile::TempDir;

pub use crate::registers::ClosurePlugin;
use crate::test_channel::TestChannel;

/// A plugin made from a function.
pub fn boxed_plugin(
    name: &'static str,
    register: impl Fn(&mut HookRegistrar) + Send + Sync + 'static,
) -> Box<dyn Plugin> {
    Box::new(ClosurePlugin(name, register))
}

/// A plugin with a tool `hold`, which waits at a gate and then says so.
pub fn hold_tool_plugin(gate: &ReplyBarrier) -> Box<dyn Plugin> {
    let gate = gate.clone();
    boxed_plugin("hold", move |hooks| {
        let gate = gate.clone();
        let hold = move |_: JsonObject, _: ToolContext| {
            let gate = gate.clone();
            async move {
                gate.wait_for_release().await;
                Ok(ToolOutput::ok("held"))
            }
        };
        let schema = json!({"type": "object", "properties": {}});
        let tool: Arc<dyn Tool> = Arc::new(FnTool::new("hold", "Waits.", schema, hold));
        hooks.on_sync(ProvideTools, move || Ok(Some(vec![Arc::clone(&tool)])));
    })
}

/// Where hosts live: a workspace, a folder of owners, and a store that outlives them.
pub struct HostFixture {
    folder: TempDir,
    store: Arc<dyn Store>,
}

impl HostFixture {
    /// A house whose store is in memory: for paused time.
    pub fn in_memory() -> Self {
        Self::with_store(Arc::new(MemoryStore::new()))
    }

    /// A house with this store.
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), store }
    }

    /// A house with a real database.
    pub fn on_disk() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(folder.path().join("capstan.db")).unwrap());
        Self { folder, store }
    }

    /// The workspace of its hosts.
    pub fn workspace(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// A host of this house with a connection of its own to the database, as another process has.
    pub fn second_host_builder(&self) -> TestHostBuilder {
        let store = Arc::new(SqliteStore::open(self.folder.path().join("capstan.db")).unwrap());
        TestHostBuilder { store, ..self.host_builder() }
    }

    /// A host of this house, to be put together.
    pub fn host_builder(&self) -> TestHostBuilder {
        let settings = HostOptions {
            workspace: WorkspaceDir { path: self.folder.path().to_owned() },
            model: "demo:echo".parse().unwrap(),
            fallback_models: Vec::new(),
            model_options: ModelOptions::default(),
            max_message_bytes: 1 << 20,
            run_timeout: Duration::from_mins(10),
            session_wait_timeout: Duration::from_mins(1),
            intake_overrides: Default::default(),
            max_queued_events: 64,
            // Longer than a run: what becomes of a run whose tool hangs is seen here.
            limits: RunLimits { tool_timeout: Duration::from_mins(20), ..RunLimits::default() },
            secret_masker: SecretMasker::new(Vec::<String>::new()),
            lease_owner: LeaseOwner::open(self.folder.path().join("owners")).unwrap(),
            clock: Clock::system(),
        };
        TestHostBuilder {
            settings,
            store: Arc::clone(&self.store),
            plugins: Vec::new(),
            channels: Vec::new(),
            openai_base_url: None,
        }
    }

    /// The outcome of an event, if it has one.
    pub async fn outcome(&self, event: &Event) -> Option<Outcome> {
        let accepted = self.store.inbox_record(&EventKey::from(event)).await.unwrap().expect("it was accepted");
        accepted.outcome.map(|(outcome, _)| outcome)
    }

    /// Asserts that nothing is in flight and nothing is damaged.
    #[track_caller]
    pub fn assert_settled(&self) -> impl Future<Output = ()> {
        let store = Arc::clone(&self.store);
        async move {
            assert_eq!(store.in_flight_events(None).collect().await.unwrap(), [], "every event has its outcome");
            assert_eq!(store.open_runs().collect().await.unwrap(), [], "every run has ended");
            assert_eq!(store.verify().await.unwrap(), []);
        }
    }
}

/// A host that is being put together.
pub struct TestHostBuilder {
    settings: HostOptions,
    store: Arc<dyn Store>,
    plugins: Vec<Box<dyn Plugin>>,
    channels: Vec<Arc<dyn Channel>>,
    openai_base_url: Option<String>,
}

impl TestHostBuilder {
    pub fn plugin(mut self, plugin: Box<dyn Plugin>) -> Self {
        self.plugins.push(plugin);
        self
    }

    pub fn channel(mut self, channel: &Arc<TestChannel>) -> Self {
        self.channels.push(Arc::clone(channel) as Arc<dyn Channel>);
        self
    }

    /// Answers come from this model.
    pub fn model(mut self, server: &ScriptedModel) -> Self {
        self.openai_base_url = Some(server.base_url());
        self.settings.model = "openai:scripted".parse().unwrap();
        self
    }

    pub fn configure(mut self, change: impl FnOnce(&mut HostOptions)) -> Self {
        change(&mut self.settings);
        self
    }

    pub async fn start(self) -> Host {
        let mut registry = Registry::new();
        let (channels, openai) = (self.channels, self.openai_base_url);
        registry.register(&ClosurePlugin("builtin", move |hooks: &mut HookRegistrar| {
            capstan_host::builtin::register(hooks);
            // What was said is looked at here, not where it came from.
            let settings = capstan_agent::AgentOptions { message_context: false, ..Default::default() };
            capstan_agent::register(hooks, capstan_agent::LoopOptions::default(), settings);
            let (channels, api_base) = (channels.clone(), openai.clone());
            hooks.on_sync(ProvideChannels, move || Ok(Some(channels.clone())));
            hooks.on_sync(ProvideModelOptions, move || {
                let api_key = Some("a key".to_owned().into());
                let settings =
                    capstan_models::ProviderOptions { api_key, api_base: api_base.clone(), ..Default::default() };
                let openai = Provider::new("openai", WireProtocol::OpenAi, settings, Arc::new(HttpClients::new()));
                Ok(Some(vec![Arc::new(DemoProvider) as Arc<dyn ModelProvider>, Arc::new(openai)]))
            });
        }));
        for plugin in &self.plugins {
            registry.register(plugin.as_ref());
        }
        assert_eq!(registry.load_failures(), [], "every plugin loads");
        let hooks = HookRuntime::new(registry, HookDeadlines::default());
        Host::start(hooks, self.store, self.settings).await.unwrap()
    }
}

/// Says something in the background; the handle gives what became of it.
pub fn serve_in_background(host: &Host, event: Event) -> tokio::task::JoinHandle<ServedEvent> {
    let host = host.clone();
    tokio::spawn(async move { host.serve(event).await.unwrap() })
}

/// Hands an event in and waits until it is accepted, and its session has heard of it.
pub async fn submit(host: &Host, event: &Event) {
    host.submit(event.clone().into()).await.expect("it is accepted");
    // Its session has been woken: on the one thread of a test it runs before whoever lets it pass.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// An outcome in a few words.
pub fn format_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Replied { text } => format!("replied: {text}"),
        Outcome::Failed { notice, .. } => format!("failed: {notice}"),
        other => other.name().to_owned(),
    }
}

/// Answers with what it was told, once its gate is open.
pub fn gated_echo_plugin(gate: &ReplyBarrier) -> Box<dyn Plugin> {
    let gate = gate.clone();
    boxed_plugin("echo", move |hooks| {
        let gate = gate.clone();
        hooks.on(RunModel, move |prompt: PromptContent| {
            let gate = gate.clone();
            async move {
                gate.wait_for_release().await;
                Ok(Some(format!("re: {}", prompt.text())))
            }
        });
    })
}
