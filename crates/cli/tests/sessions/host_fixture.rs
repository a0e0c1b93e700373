//! Host builder for tests: built-in stages, the agent, test channels, and access to every host option.

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

/// Boxed plugin whose registration is a closure.
pub fn boxed_plugin(
    name: &'static str,
    register: impl Fn(&mut HookRegistrar) + Send + Sync + 'static,
) -> Box<dyn Plugin> {
    Box::new(ClosurePlugin(name, register))
}

/// Plugin with a tool `hold`, which waits for the release of `barrier` and returns `held`.
pub fn hold_tool_plugin(barrier: &ReplyBarrier) -> Box<dyn Plugin> {
    let barrier = barrier.clone();
    boxed_plugin("hold", move |hooks| {
        let barrier = barrier.clone();
        let action = move |_: JsonObject, _: ToolContext| {
            let barrier = barrier.clone();
            async move {
                barrier.wait_for_release().await;
                Ok(ToolOutput::ok("held"))
            }
        };
        let schema = json!({"type": "object", "properties": {}});
        let tool: Arc<dyn Tool> = Arc::new(FnTool::new("hold", "Waits.", schema, action));
        hooks.on_sync(ProvideTools, move || Ok(Some(vec![Arc::clone(&tool)])));
    })
}

/// Workspace, owner folder and store, shared by successive hosts.
pub struct HostFixture {
    folder: TempDir,
    store: Arc<dyn Store>,
}

impl HostFixture {
    /// Fixture with a store in memory, for tests on a paused clock.
    pub fn in_memory() -> Self {
        Self::with_store(Arc::new(MemoryStore::new()))
    }

    /// Fixture with this store.
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), store }
    }

    /// Fixture with a SQLite database.
    pub fn on_disk() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(folder.path().join("capstan.db")).unwrap());
        Self { folder, store }
    }

    /// Workspace of the hosts.
    pub fn workspace(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Builder of a host with its own connection to the database, like another process.
    pub fn second_host_builder(&self) -> TestHostBuilder {
        let store = Arc::new(SqliteStore::open(self.folder.path().join("capstan.db")).unwrap());
        TestHostBuilder { store, ..self.host_builder() }
    }

    /// Builder of a host on the store of the fixture.
    pub fn host_builder(&self) -> TestHostBuilder {
        let options = HostOptions {
            workspace: WorkspaceDir { path: self.folder.path().to_owned() },
            model: "demo:echo".parse().unwrap(),
            fallback_models: Vec::new(),
            model_options: ModelOptions::default(),
            max_message_bytes: 1 << 20,
            run_timeout: Duration::from_mins(10),
            session_wait_timeout: Duration::from_mins(1),
            intake_overrides: Default::default(),
            max_queued_events: 64,
            // Longer than a run, so that a run with a hanging tool reaches its own timeout.
            limits: RunLimits { tool_timeout: Duration::from_mins(20), ..RunLimits::default() },
            secret_masker: SecretMasker::new(Vec::<String>::new()),
            lease_owner: LeaseOwner::open(self.folder.path().join("owners")).unwrap(),
            clock: Clock::system(),
        };
        TestHostBuilder {
            options,
            store: Arc::clone(&self.store),
            plugins: Vec::new(),
            channels: Vec::new(),
            openai_base_url: None,
        }
    }

    /// Outcome of an event, if it has one.
    pub async fn outcome(&self, event: &Event) -> Option<Outcome> {
        let record = self.store.inbox_record(&EventKey::from(event)).await.unwrap().expect("the event was accepted");
        record.outcome.map(|(outcome, _)| outcome)
    }

    /// Asserts that no event is in flight, no run is open, and the store is undamaged.
    #[track_caller]
    pub fn assert_settled(&self) -> impl Future<Output = ()> {
        let store = Arc::clone(&self.store);
        async move {
            assert_eq!(store.in_flight_events(None).collect().await.unwrap(), [], "every event has an outcome");
            assert_eq!(store.open_runs().collect().await.unwrap(), [], "every run has ended");
            assert_eq!(store.verify().await.unwrap(), []);
        }
    }
}

/// Builder of a host in this process.
pub struct TestHostBuilder {
    options: HostOptions,
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

    /// Uses the scripted model in place of the demo model.
    pub fn model(mut self, server: &ScriptedModel) -> Self {
        self.openai_base_url = Some(server.base_url());
        self.options.model = "openai:scripted".parse().unwrap();
        self
    }

    pub fn configure(mut self, change: impl FnOnce(&mut HostOptions)) -> Self {
        change(&mut self.options);
        self
    }

    pub async fn start(self) -> Host {
        let mut registry = Registry::new();
        let (channels, openai) = (self.channels, self.openai_base_url);
        registry.register(&ClosurePlugin("builtin", move |hooks: &mut HookRegistrar| {
            capstan_host::builtin::register(hooks);
            // These tests compare message texts, which would otherwise begin with their origin.
            let options = capstan_agent::AgentOptions { message_context: false, ..Default::default() };
            capstan_agent::register(hooks, capstan_agent::LoopOptions::default(), options);
            let (channels, api_base) = (channels.clone(), openai.clone());
            hooks.on_sync(ProvideChannels, move || Ok(Some(channels.clone())));
            hooks.on_sync(ProvideModelOptions, move || {
                let api_key = Some("a key".to_owned().into());
                let options =
                    capstan_models::ProviderOptions { api_key, api_base: api_base.clone(), ..Default::default() };
                let openai = Provider::new("openai", WireProtocol::OpenAi, options, Arc::new(HttpClients::new()));
                Ok(Some(vec![Arc::new(DemoProvider) as Arc<dyn ModelProvider>, Arc::new(openai)]))
            });
        }));
        for plugin in &self.plugins {
            registry.register(plugin.as_ref());
        }
        assert_eq!(registry.load_failures(), [], "every plugin loads");
        let hooks = HookRuntime::new(registry, HookDeadlines::default());
        Host::start(hooks, self.store, self.options).await.unwrap()
    }
}

/// Serves an event in a spawned task.
pub fn serve_in_background(host: &Host, event: Event) -> tokio::task::JoinHandle<ServedEvent> {
    let host = host.clone();
    tokio::spawn(async move { host.serve(event).await.unwrap() })
}

/// Submits an event, and waits until it is accepted and its session actor has seen it.
pub async fn submit(host: &Host, event: &Event) {
    host.submit(event.clone().into()).await.expect("the event is accepted");
    // On the single thread of a test, the notified session actor runs before the task that releases it.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// Outcome as a short text.
pub fn format_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Replied { text } => format!("replied: {text}"),
        Outcome::Failed { notice, .. } => format!("failed: {notice}"),
        other => other.name().to_owned(),
    }
}

/// Plugin whose model stage echoes the prompt after the release of `barrier`.
pub fn blocking_echo_plugin(barrier: &ReplyBarrier) -> Box<dyn Plugin> {
    let barrier = barrier.clone();
    boxed_plugin("echo", move |hooks| {
        let barrier = barrier.clone();
        hooks.on(RunModel, move |prompt: PromptContent| {
            let barrier = barrier.clone();
            async move {
                barrier.wait_for_release().await;
                Ok(Some(format!("re: {}", prompt.text())))
            }
        });
    })
}
