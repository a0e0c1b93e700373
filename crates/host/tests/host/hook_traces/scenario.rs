//! Builder for all hook-trace tests: registers plugins, runs one turn and returns its trace.

use std::fmt::Write as _;

use capstan_hooks::{HookRegistrar, InboundEvent};
use capstan_host::ServedEvent;
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost, TestHostBuilder};
use capstan_protocol::{ChatMessage, Clock, Event, Outcome, Timestamp};
use capstan_tape::{Entry, EntryKind, TapeSlice};

use crate::hook_traces::recorder::{HookRecorder, truncate_text};

/// Host with plugins that serves one event. The recorder is always its last plugin.
pub struct TurnScenario {
    pub recorder: HookRecorder,
    environment: TestEnvironment,
    builder: TestHostBuilder,
}

impl TurnScenario {
    /// Scenario with the built-in plugin and the recorder.
    pub fn new() -> Self {
        let environment = TestEnvironment::in_memory();
        let builder = environment.host().options(|options| options.clock = fixed_clock());
        Self { recorder: HookRecorder::default(), environment, builder: builder.allow_load_failures() }
    }

    /// Adds a plugin. The last one added is called first.
    pub fn plugin(self, name: &'static str, register: impl Fn(&mut HookRegistrar) + Send + Sync + 'static) -> Self {
        self.with_plugin(ClosurePlugin::new(name, register))
    }

    /// Adds a plugin. The last one added is called first.
    pub fn with_plugin(mut self, plugin: ClosurePlugin) -> Self {
        self.builder = self.builder.plugin(plugin);
        self
    }

    /// Adds a plugin whose runner takes the place of the agent.
    pub fn agent_plugin(
        mut self,
        name: &'static str,
        register: impl Fn(&mut HookRegistrar) + Send + Sync + 'static,
    ) -> Self {
        self.builder = self.builder.agent_plugin(ClosurePlugin::new(name, register));
        self
    }

    /// Serves a message `hello` from the terminal.
    pub async fn serve_hello(self) -> TurnTrace {
        self.serve(Event::message("cli", "local", "hello")).await
    }

    /// Serves an event on a host without the built-in plugin: only the plugins of the scenario answer.
    pub async fn serve_without_builtin(mut self, inbound: impl Into<InboundEvent>) -> TurnTrace {
        self.builder = self.builder.without_builtin();
        self.serve(inbound).await
    }

    /// Serves an event.
    pub async fn serve(self, inbound: impl Into<InboundEvent>) -> TurnTrace {
        let host = self.builder.plugin(self.recorder.clone()).start().await;
        self.recorder.clear();
        let served = host.serve(inbound.into()).await.unwrap();
        let mut tape = Vec::new();
        for record in host.tapes().list().await.unwrap() {
            tape.extend(host.tapes().read(&record.name, &TapeSlice::all()).await.unwrap());
        }
        let runs = self.environment.store().runs().collect().await.unwrap().len();
        TurnTrace { recorder: self.recorder, host, served, tape, runs }
    }
}

fn fixed_clock() -> Clock {
    let now: Timestamp = "2026-11-15T20:57:42+00:00".parse().unwrap();
    Clock::new(move || now)
}

/// Record of one turn.
pub struct TurnTrace {
    pub host: TestHost,
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
