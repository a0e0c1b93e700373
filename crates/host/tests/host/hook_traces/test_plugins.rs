//! Model stages, runners and channels for the plugins of the scenarios.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use capstan_hooks::args::PromptContent;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway, ResultStream, RunApi, Runner};
use capstan_hooks::points::{ProvideChannels, ProvideRunners, RunModel};
use capstan_hooks::{HookRegistrar, InboundEvent};
use capstan_protocol::{ChannelName, Descriptor, OutboundMessage, ResultBody, RunContext, RunResult, StreamEvent};
use futures::StreamExt as _;
use futures::stream;
use tokio::sync::oneshot;

use crate::hook_traces::recorder::HookRecorder;

/// Registers a model stage that repeats the prompt.
pub fn register_echo(hooks: &mut HookRegistrar) {
    hooks.on(RunModel, |prompt: PromptContent| async move { Ok(Some(prompt.text())) });
}

/// Replaces the built-in agent with a runner that yields `results`, and streams.
pub fn register_runner(results: Vec<ResultBody>) -> impl Fn(&mut HookRegistrar) + Send + Sync + 'static {
    register_scripted_runner(ScriptedRunner { results, streaming: true })
}

/// Replaces the built-in agent with a runner that yields `results`, without the capability to stream.
pub fn register_quiet_runner(results: Vec<ResultBody>) -> impl Fn(&mut HookRegistrar) + Send + Sync + 'static {
    register_scripted_runner(ScriptedRunner { results, streaming: false })
}

fn register_scripted_runner(runner: ScriptedRunner) -> impl Fn(&mut HookRegistrar) + Send + Sync + 'static {
    let runner: Arc<dyn Runner> = Arc::new(runner);
    move |hooks| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    }
}

/// Replaces the terminal with `screen`.
pub fn register_channel(screen: RecordingChannel) -> impl Fn(&mut HookRegistrar) + Send + Sync + 'static {
    let screen: Arc<dyn Channel> = Arc::new(screen);
    move |hooks| {
        let screen = Arc::clone(&screen);
        hooks.on_sync(ProvideChannels, move || Ok(Some(vec![Arc::clone(&screen)])));
    }
}

/// Runner that yields a fixed list of results.
struct ScriptedRunner {
    results: Vec<ResultBody>,
    /// Capability `streaming`.
    streaming: bool,
}

impl Runner for ScriptedRunner {
    fn descriptor(&self) -> Descriptor {
        let streaming = self.streaming;
        let capabilities =
            capstan_protocol::RunnerCapabilities { streaming, event_context: true, ..Default::default() };
        Descriptor { capabilities, ..Descriptor::new("builtin:agent", "scripted") }
    }

    fn run(&self, _context: RunContext, _api: RunApi) -> ResultStream {
        stream::iter(self.results.clone().into_iter().map(RunResult::from)).boxed()
    }
}

/// Streaming channel that logs the events and messages it receives.
pub struct RecordingChannel {
    recorder: HookRecorder,
    /// Notified when the first event is shown.
    first_event_sender: Mutex<Option<oneshot::Sender<()>>>,
}

impl RecordingChannel {
    /// Channel that logs to `recorder`.
    pub fn new(recorder: &HookRecorder) -> Self {
        Self { recorder: recorder.clone(), first_event_sender: Mutex::default() }
    }

    /// Channel that also signals when the first event is shown.
    pub fn with_first_event_signal(recorder: &HookRecorder) -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self { first_event_sender: Mutex::new(Some(sender)), ..Self::new(recorder) }, receiver)
    }
}

#[async_trait]
impl Channel for RecordingChannel {
    fn name(&self) -> ChannelName {
        "cli".into()
    }

    /// Those of a channel that declares none: it is shown stream events because it implements `on_stream_event`.
    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities::default()
    }

    async fn start(&self, _gateway: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<(), ChannelError> {
        self.recorder.note("  channel sends", format!("{:?}", message.content.text()));
        Ok(())
    }

    async fn on_stream_event(&self, event: &StreamEvent, _message: &InboundEvent) -> Result<(), ChannelError> {
        self.recorder.note("  channel shows", serde_json::to_string(event).unwrap());
        if let Some(first) = self.first_event_sender.lock().unwrap().take() {
            first.send(()).unwrap();
        }
        Ok(())
    }
}
