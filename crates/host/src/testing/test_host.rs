//! Running host of a test.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::contracts::Gateway as _;
use capstan_protocol::{ChatMessage, Event, EventOrigin, MessageRole, TapeName};
use capstan_tape::{DefaultView, Entry, EntryKind, TapeSlice};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{TestEnvironment, TestHostBuilder};
use crate::{Host, HostError, IncomingEvent, ServedEvent};

/// Running host of a test. Its workspace exists as long as the host or its environment.
#[derive(Clone)]
pub struct TestHost {
    host: Host,
    folder: Arc<TempDir>,
}

impl TestHost {
    /// Builder of a host in an environment of its own, with a store in memory.
    pub fn builder() -> TestHostBuilder {
        TestEnvironment::in_memory().host()
    }

    pub(super) fn new(host: Host, folder: Arc<TempDir>) -> Self {
        Self { host, folder }
    }

    /// Workspace of the host.
    pub fn workspace(&self) -> &Path {
        self.folder.path()
    }

    /// Sends a message from the terminal and waits for its outcome.
    pub async fn send_message(&self, text: &str) -> ServedEvent {
        let event = IncomingEvent::trusted(Event::message("cli", "local", text));
        self.serve(event).await.expect("the event is served")
    }

    /// Serves an event in a spawned task.
    pub fn serve_in_background(&self, event: Event) -> JoinHandle<ServedEvent> {
        let host = self.host.clone();
        tokio::spawn(async move { host.serve(event).await.expect("the event is served") })
    }

    /// Submits an event as from a trusted channel, and waits until it is accepted and its session actor has seen it.
    pub async fn submit_and_wait(&self, event: &Event) {
        let gateway = self.gateway(EventOrigin::Trusted);
        gateway.submit(event.clone().into()).await.expect("the event is accepted");
        // On the single thread of a test, the notified session actor runs before the task that releases it.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    /// Name of the oldest tape.
    pub async fn tape(&self) -> TapeName {
        self.tapes().list().await.expect("the tapes can be listed").remove(0).name
    }

    /// Entries of the oldest tape.
    pub async fn entries(&self) -> Vec<Entry> {
        self.read_tape(&self.tape().await).await
    }

    /// Names of the events on the oldest tape, in order.
    pub async fn event_names(&self) -> Vec<String> {
        let entries = self.entries().await;
        let events = entries.iter().filter(|entry| entry.kind == EntryKind::Event);
        events.filter_map(Entry::name).map(str::to_owned).collect()
    }

    /// Data of the events with this name on all tapes.
    pub async fn event_data(&self, name: &str) -> Vec<Value> {
        let mut events = Vec::new();
        for tape in self.tapes().list().await.expect("the tapes can be listed") {
            let entries = self.read_tape(&tape.name).await;
            let named = entries.into_iter().filter(|entry| entry.name() == Some(name));
            events.extend(named.map(|entry| entry.payload["data"].clone()));
        }
        events
    }

    /// Messages of the oldest tape that a model would read, one line each.
    pub async fn view(&self) -> Vec<String> {
        let window = self.tapes().window(&self.tape().await).await.expect("the tape can be read");
        DefaultView.messages(&window).iter().map(format_message).collect()
    }

    /// Stops the host; see [`Host::stop`].
    pub async fn stop(self) -> Result<(), HostError> {
        self.host.stop().await
    }

    /// Stops the host; see [`Host::stop_within`].
    pub async fn stop_within(self, grace: Duration) -> Result<(), HostError> {
        self.host.stop_within(grace).await
    }

    /// Stops the host at once; see [`Host::abort`].
    pub async fn abort(self) -> Result<(), HostError> {
        self.host.abort().await
    }

    async fn read_tape(&self, tape: &TapeName) -> Vec<Entry> {
        self.tapes().read(tape, &TapeSlice::all()).await.expect("the tape can be read")
    }
}

impl Deref for TestHost {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

fn format_message(message: &ChatMessage) -> String {
    let calls: Vec<&str> = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
    match message.role {
        MessageRole::Tool => {
            format!("tool {}: {}", message.tool_call_id.as_deref().unwrap_or_default(), message.content.text())
        }
        MessageRole::Assistant if !calls.is_empty() => format!("calls {}", calls.join(" ")),
        role => format!("{role:?}: {}", message.content.text()).to_lowercase(),
    }
}
