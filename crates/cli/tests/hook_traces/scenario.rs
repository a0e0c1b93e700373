//! Builder for all hook-trace tests: registers plugins, runs one turn and returns its trace.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use capstan::hooks::{BoxError, HookDeadlines, HookRegistrar, HookRuntime, InboundEvent, Plugin, Registry};
use capstan::protocol::{ChatMessage, Event, ModelOptions, Outcome, Timestamp};
use capstan::tape::{Entry, EntryKind, LedgerStore as _, MemoryStore, TapeSlice};
use capstan::{Capstan, Host, ServedEvent};
use capstan_host::{HostOptions, LeaseOwner, SecretMasker, WorkspaceDir};
use capstan_protocol::Clock;
use tempfile::TempDir;

use crate::recorder::{HookRecorder, truncate_text};

/// Registration function of a plugin.
type PluginRegisterFn = dyn Fn(&mut HookRegistrar) -> Result<(), BoxError> + Send + Sync;

/// Plugin whose registration is a closure.
pub struct ScenarioPlugin {
    name: &'static str,
    register: Box<PluginRegisterFn>,
}

impl ScenarioPlugin {
    /// Plugin that always loads.
    pub fn new(name: &'static str, register: impl Fn(&mut HookRegistrar) + Send + Sync + 'static) -> Self {
        Self::fallible(name, move |hooks| {
            register(hooks);
            Ok(())
        })
    }

    /// Plugin that may fail to load.
    pub fn fallible(
        name: &'static str,
        register: impl Fn(&mut HookRegistrar) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        Self { name, register: Box::new(register) }
    }
}

impl Plugin for ScenarioPlugin {
    fn name(&self) -> &str {
        self.name
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        (self.register)(hooks)
    }
}

/// Host with plugins that serves one event. The recorder is always its last plugin.
pub struct TurnScenario {
    pub recorder: HookRecorder,
    pub workspace: TempDir,
    store: Arc<MemoryStore>,
    plugins: Vec<ScenarioPlugin>,
}

impl TurnScenario {
    /// Scenario with the built-in plugin and the recorder.
    pub fn new() -> Self {
        Self {
            recorder: HookRecorder::default(),
            workspace: TempDir::new().unwrap(),
            store: Arc::new(MemoryStore::new()),
            plugins: Vec::new(),
        }
    }

    /// Adds a plugin. The last one added is called first.
    pub fn plugin(self, name: &'static str, register: impl Fn(&mut HookRegistrar) + Send + Sync + 'static) -> Self {
        self.with_plugin(ScenarioPlugin::new(name, register))
    }

    /// Adds a plugin. The last one added is called first.
    pub fn with_plugin(mut self, plugin: ScenarioPlugin) -> Self {
        self.plugins.push(plugin);
        self
    }

    /// Serves a message `hello` from the terminal.
    pub async fn serve_hello(self) -> TurnTrace {
        self.serve(Event::message("cli", "local", "hello")).await
    }

    /// Serves an event with the built-in plugin registered before the others.
    pub async fn serve(mut self, inbound: impl Into<InboundEvent>) -> TurnTrace {
        let mut builder = Capstan::builder()
            .workspace(self.workspace.path())
            .home(self.workspace.path().join("home"))
            .store(Arc::clone(&self.store) as _)
            .clock(fixed_clock())
            .set("message_context", "false")
            .set("model", "demo:");
        for plugin in std::mem::take(&mut self.plugins) {
            builder = builder.plugin(plugin);
        }
        let host = builder.plugin(self.recorder.clone()).start().await.unwrap();
        self.record_turn(host, inbound.into()).await
    }

    /// Serves an event on a host without the built-in plugin: only the plugins of the scenario answer.
    pub async fn serve_without_builtin(self, inbound: impl Into<InboundEvent>) -> TurnTrace {
        let mut registry = Registry::new();
        for plugin in &self.plugins {
            registry.register(plugin);
        }
        registry.register(&self.recorder);
        let options = HostOptions {
            workspace: WorkspaceDir { path: self.workspace.path().to_owned() },
            model: "demo:".parse().unwrap(),
            fallback_models: Vec::new(),
            model_options: ModelOptions::default(),
            max_message_bytes: 1_000_000,
            run_timeout: Duration::from_mins(10),
            session_wait_timeout: Duration::from_secs(10),
            intake_overrides: Default::default(),
            max_queued_events: 64,
            limits: Default::default(),
            secret_masker: SecretMasker::default(),
            lease_owner: LeaseOwner::anonymous(),
            clock: fixed_clock(),
        };
        let hooks = HookRuntime::new(registry, HookDeadlines::default());
        let host = Host::start(hooks, Arc::clone(&self.store) as _, options).await.unwrap();
        self.record_turn(host, inbound.into()).await
    }

    async fn record_turn(self, host: Host, inbound: InboundEvent) -> TurnTrace {
        self.recorder.clear();
        let served = host.serve(inbound).await.unwrap();
        let mut tape = Vec::new();
        for record in host.tapes().list().await.unwrap() {
            tape.extend(host.tapes().read(&record.name, &TapeSlice::all()).await.unwrap());
        }
        let runs = self.store.runs().collect().await.unwrap().len();
        TurnTrace { recorder: self.recorder, host, served, tape, runs }
    }
}

fn fixed_clock() -> Clock {
    let now: Timestamp = "2026-11-15T20:57:42+00:00".parse().unwrap();
    Clock::new(move || now)
}

/// Record of one turn.
pub struct TurnTrace {
    pub host: Host,
    pub served: ServedEvent,
    pub tape: Vec<Entry>,
    /// Number of runs in the ledger.
    pub runs: usize,
    recorder: HookRecorder,
}

impl TurnTrace {
    /// Hook calls, followed by the outcome of the event.
    pub fn to_text(&self) -> String {
        format!("{}\n\n{}", self.recorder.lines().join("\n"), self.outcome_text())
    }

    /// Hook calls with the arguments of each implementation, followed by the outcome of the event.
    pub fn to_text_with_arguments(&self) -> String {
        format!("{}\n\n{}", self.recorder.lines_with_arguments().join("\n"), self.outcome_text())
    }

    /// Hook calls, the outcome of the event, and the tape.
    pub fn to_text_with_tape(&self) -> String {
        let mut text = self.to_text();
        for entry in &self.tape {
            write!(text, "\n{:8} {}", "tape", format_entry(entry)).unwrap();
        }
        text
    }

    fn outcome_text(&self) -> String {
        let served = &self.served;
        let outcome = match &served.outcome {
            None => "in flight".to_owned(),
            Some(Outcome::Replied { text }) => format!("replied {}", quote_text(text)),
            Some(outcome) => outcome.name().to_owned(),
        };
        let mut text = format!("{:8} {outcome}", "outcome");
        if let Some(error) = &served.error {
            write!(text, "\n{:8} {}: {error}", "error", error.code()).unwrap();
        }
        for outbound in &served.outbounds {
            let kind = format!("{:?}", outbound.kind).to_lowercase();
            let (channel, chat, reply) = (&outbound.channel, &outbound.chat_id, quote_text(&outbound.content.text()));
            write!(text, "\n{:8} {kind} to {channel}:{chat} {reply}", "outbound").unwrap();
        }
        text
    }
}

fn quote_text(text: &str) -> String {
    truncate_text(&format!("{text:?}"))
}

fn format_entry(entry: &Entry) -> String {
    let payload = &entry.payload;
    let text = |key: &str| payload.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let rest = match &entry.kind {
        EntryKind::Message => {
            let message: ChatMessage = serde_json::from_value(payload.clone()).unwrap();
            format!("{} {}", text("role"), quote_text(&message.content.text()))
        }
        EntryKind::Event if entry.name() == Some("outbound") => format!("outbound {}", payload["data"]),
        EntryKind::Error => format!("{} {}", text("stage"), quote_text(&text("message"))),
        _ => text("name"),
    };
    format!("{} {rest}", entry.kind)
}
