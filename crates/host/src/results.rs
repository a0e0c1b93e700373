//! From a runner's results to the tape, the stream and the output. The table in `docs/ARCHITECTURE.md` says what each
//! becomes. Tool and model calls that go through the run API are journalled there, before and after they are made.

use std::sync::Arc;

use capstan_hooks::EventStream;
use capstan_protocol::{ChatMessage, Content, Map, ResultBody, RunResult, StreamEvent};
use capstan_tape::{Draft, Fact, StoreError, keys};
use capstan_turn::RunFailure;
use futures::StreamExt as _;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::api;
use crate::run::{Run, Terminal};

/// What stands between two messages of one run, where they are shown as one reply.
const BETWEEN_MESSAGES: &str = "\n\n";

/// Asks the binding's runner, and gives what happens as stream events.
pub(crate) fn runner_stream(run: Arc<Run>, mut from_api: mpsc::Receiver<StreamEvent>) -> EventStream {
    run.progress().runner_started = true;
    run.journal.start_run(run.id());
    let stream = async_stream::stream! {
        let mut results = run.runner.run(run.context.clone(), api::run_api(&run));
        loop {
            tokio::select! {
                biased;
                Some(event) = from_api.recv() => yield event,
                result = results.next() => {
                    let Some(result) = result else { break };
                    for event in run.accept(result).await {
                        yield event;
                    }
                    if run.progress().terminal.is_some() {
                        break;
                    }
                }
            }
        }
        drop(results);
        while let Ok(event) = from_api.try_recv() {
            yield event;
        }
        for event in run.finish_results() {
            yield event;
        }
    };
    stream.boxed()
}

impl Run {
    /// Takes a result in: onto the tape, into the output. Gives what the channel is shown.
    pub(crate) async fn accept(&self, result: RunResult) -> Vec<StreamEvent> {
        if let Some(usage) = &result.usage {
            self.add_usage(usage);
        }
        if !matches!(result.body, ResultBody::ToolCallStarted { .. } | ResultBody::ToolCallCompleted { .. }) {
            let steps = self.progress().reported.next_step();
            self.append_all(steps);
        }
        match result.body {
            ResultBody::MessageDelta { delta } => vec![StreamEvent::text(self.add_delta(&delta))],
            ResultBody::ReasoningDelta { delta } => vec![StreamEvent::Reasoning { delta }],
            ResultBody::MessageCompleted { content, provider_meta } => self.complete_message(content, provider_meta),
            ResultBody::ToolCallStarted { call } => {
                self.complete_partial();
                self.progress().reported.start(call.clone());
                vec![StreamEvent::ToolCall { call }]
            }
            ResultBody::ToolCallCompleted { call_id, name, output } => {
                let output = self.services.settings.secrets.mask(output);
                let steps = self.progress().reported.answer(&call_id, output.clone());
                self.append_all(steps);
                self.journalled(self.flush().await);
                vec![StreamEvent::ToolResult { call_id, name, output }]
            }
            ResultBody::StateUpdated { state } => {
                self.keep_state(state);
                Vec::new()
            }
            ResultBody::RunCompleted { silent } => {
                self.end(Terminal::Completed { silent });
                Vec::new()
            }
            ResultBody::RunFailed { message, code } => {
                self.end(Terminal::Failed(RunFailure { message, code }));
                Vec::new()
            }
        }
    }

    /// The delta as it is shown: a new message of the same run is set apart from the one before.
    fn add_delta(&self, delta: &str) -> String {
        let mut progress = self.progress();
        let begins = progress.partial.is_empty() && progress.messages.iter().any(|text| !text.is_empty());
        progress.partial.push_str(delta);
        if begins { format!("{BETWEEN_MESSAGES}{delta}") } else { delta.to_owned() }
    }

    fn complete_message(&self, content: Content, provider_meta: Map) -> Vec<StreamEvent> {
        self.take_in();
        let text = content.text();
        let mut entry = Draft::message(&ChatMessage::assistant(content));
        if !provider_meta.is_empty() {
            entry = entry.with_meta(keys::PROVIDER, Value::Object(provider_meta));
        }
        if !self.serves_command() {
            self.append(entry);
        }
        let was_streamed = !self.progress().partial.is_empty();
        let shown = if was_streamed || text.is_empty() { None } else { Some(self.add_delta(&text)) };
        let mut progress = self.progress();
        progress.partial.clear();
        progress.messages.push(text);
        shown.map(StreamEvent::text).into_iter().collect()
    }

    /// Entries of the run, which stand after the message it serves.
    fn append_all(&self, entries: Vec<Draft>) {
        if !entries.is_empty() {
            self.take_in();
        }
        for entry in entries {
            self.append(entry);
        }
    }

    /// What the runner told of its own tool calls and is not on the tape yet.
    pub(crate) fn finish_reported(&self) {
        let steps = self.progress().reported.finish();
        self.append_all(steps);
    }

    /// What was only streamed is a message of its own, once something else follows it.
    fn complete_partial(&self) {
        let partial = self.progress().partial.clone();
        if !partial.is_empty() {
            self.complete_message(Content::Text(partial), Map::new());
        }
    }

    fn keep_state(&self, state: Map) {
        if !self.keeps_state {
            tracing::warn!(run_id = %self.id(), "state.updated dropped: the binding keeps no state");
            return;
        }
        for (key, value) in state {
            self.journal.push(Fact::PutState { tape: self.journal.tape().clone(), key, value });
        }
    }

    fn end(&self, terminal: Terminal) {
        self.progress().terminal.get_or_insert(terminal);
    }

    /// A journal that fails ends the run: what it does next would not be on record.
    fn journalled(&self, outcome: Result<(), StoreError>) {
        if let Err(error) = outcome {
            let failed = api::store_failed(&error);
            self.end(Terminal::Failed(RunFailure { message: failed.message, code: failed.cause }));
        }
    }

    /// The end of the runner's stream: a message that was only streamed is completed, a missing end is a failure.
    fn finish_results(&self) -> Vec<StreamEvent> {
        self.end(Terminal::Failed(RunFailure {
            message: "the runner ended without saying how".to_owned(),
            code: Some("run-failed".to_owned()),
        }));
        let terminal = self.progress().terminal.clone();
        match terminal {
            Some(Terminal::Failed(failure)) => {
                self.keep_partial();
                let text = self.output();
                self.append(Draft::error("run_model", &failure.message));
                vec![StreamEvent::error(failure.message), StreamEvent::Final { text, ok: false }]
            }
            Some(Terminal::Completed { .. }) | None => {
                self.finish_reported();
                self.complete_partial();
                vec![StreamEvent::Final { text: self.output(), ok: true }]
            }
        }
    }

    /// A run that was broken off: what it had said of a message stays on the tape, marked as unfinished.
    pub(crate) fn keep_partial(&self) {
        self.finish_reported();
        self.keep_deferred();
        let (partial, is_stand_in) = {
            let mut progress = self.progress();
            (std::mem::take(&mut progress.partial), !progress.runner_started)
        };
        // An answer stands after its message. A stand-in takes the message in at its end, which it did not reach.
        if is_stand_in || !partial.is_empty() {
            self.take_in();
        }
        if !partial.is_empty() {
            let entry = Draft::message(&ChatMessage::assistant(partial));
            self.append(entry.with_meta("interrupted", Value::Bool(true)));
        }
    }

    /// What the run has said, as one text.
    pub(crate) fn output(&self) -> String {
        let progress = self.progress();
        let said: Vec<&str> = progress.messages.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
        said.join(BETWEEN_MESSAGES)
    }
}
