//! Applies the results of a runner: to the tape, the stream and the output. The table in `docs/ARCHITECTURE.md` lists
//! the effect of each result. Tool and model calls through the run API are journalled there, before and after the call.

mod panic_safe_stream;
pub(crate) mod runner_tool_calls;
mod validation;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use capstan_hooks::EventStream;
use capstan_protocol::{
    ApiError, ApiErrorCode, ChatMessage, Content, ErrorCode, JsonObject, ResultBody, RunResult, RunnerSource,
    StreamEvent,
};
use capstan_tape::{DroppedResult, EntryDraft, ResultAnomalies, StoreError, TapeEvent, meta_keys};
use capstan_turn::RunError;
use futures::{FutureExt as _, StreamExt as _};
use panic_safe_stream::PanicSafeStream;
use serde_json::Value;
use tokio::sync::mpsc;
pub(crate) use validation::{ResultValidator, ResultVerdict};

use crate::api;
use crate::runs::run::{Run, TerminalResult};

/// Separator between messages of one run that are shown as one reply.
const MESSAGE_SEPARATOR: &str = "\n\n";
/// Maximum number of results counted after the end of a run.
const MAX_TRAILING_RESULTS: usize = 64;

/// Calls the binding's runner and returns its progress as stream events.
pub(crate) fn runner_stream(run: Arc<Run>, mut from_api: mpsc::Receiver<StreamEvent>) -> EventStream {
    run.progress().runner_started = true;
    run.journal.start_run(run.id());
    let stream = async_stream::stream! {
        let mut results = PanicSafeStream::new(api::call_runner(&run));
        loop {
            tokio::select! {
                biased;
                Some(event) = from_api.recv() => yield event,
                result = results.stream().next() => {
                    let Some(result) = result else { break };
                    for event in run.handle_result(result).await {
                        yield event;
                    }
                    if run.progress().terminal.is_some() {
                        break;
                    }
                }
            }
            // A runner that always has a result ready must not starve the deadline or other tasks.
            tokio::task::consume_budget().await;
        }
        run.count_trailing_results(results);
        while let Ok(event) = from_api.try_recv() {
            yield event;
        }
        for event in run.finish_results() {
            yield event;
        }
    };
    stream.boxed()
}

/// The entry that records a dropped result.
pub(crate) fn dropped_result_entry(kind: &str, why: &str) -> EntryDraft {
    TapeEvent::ResultDropped(DroppedResult { kind: kind.to_owned(), reason: why.to_owned() }).into()
}

impl Run {
    /// Validates a result and applies it if it is accepted. Returns the events for the channel.
    pub(crate) async fn handle_result(&self, result: RunResult) -> Vec<StreamEvent> {
        let verdict = {
            let mut progress = self.progress();
            let partial = progress.partial_text.len();
            progress.result_validator.validate(result, &self.services.options.limits.results, partial)
        };
        match verdict {
            ResultVerdict::Accept(result) => {
                let stream_events = self.apply_result(result).await;
                if self.progress().result_validator.should_commit() {
                    self.fail_on_store_error(self.flush().await);
                }
                stream_events
            }
            ResultVerdict::Drop(dropped) => {
                if let Some(dropped) = dropped {
                    self.drop_result(&dropped);
                }
                Vec::new()
            }
            ResultVerdict::EndRun(failure) => {
                self.set_terminal(TerminalResult::Failed(failure));
                Vec::new()
            }
        }
    }

    /// Applies a result to the tape and the output. Returns the events for the channel.
    async fn apply_result(&self, result: RunResult) -> Vec<StreamEvent> {
        if let Some(usage) = &result.usage {
            self.add_usage(usage);
        }
        if !matches!(result.body, ResultBody::ToolCallStarted { .. } | ResultBody::ToolCallCompleted { .. }) {
            let steps = self.progress().runner_tool_calls.advance();
            self.append_entries(steps);
        }
        match result.body {
            ResultBody::MessageDelta { delta } => vec![StreamEvent::text(self.add_delta(&delta))],
            ResultBody::ReasoningDelta { delta } => vec![StreamEvent::Reasoning { delta }],
            ResultBody::MessageCompleted { content, provider_meta } => self.complete_message(content, provider_meta),
            ResultBody::ToolCallStarted { call } => {
                self.complete_partial();
                self.progress().runner_tool_calls.start(call.clone());
                vec![StreamEvent::ToolCall { call }]
            }
            ResultBody::ToolCallCompleted { call_id, name, output } => {
                if !self.progress().runner_tool_calls.is_awaiting(&call_id) {
                    self.progress().result_validator.anomalies.malformed += 1;
                    self.record_dropped_result("tool.call.completed", "it does not complete an open call");
                    return Vec::new();
                }
                let output = self.services.options.secret_masker.mask_output(output);
                let steps = self.progress().runner_tool_calls.complete(&call_id, output.clone());
                self.append_entries(steps);
                self.fail_on_store_error(self.flush().await);
                vec![StreamEvent::ToolResult { call_id, name, output }]
            }
            ResultBody::StateUpdated { state, .. } if state.len() as u64 > self.grant().state_limits.keys => {
                let (keys, max_keys) = (state.len(), self.grant().state_limits.keys);
                self.refuse_result("state.updated", &format!("it has {keys} keys, more than the {max_keys} allowed"));
                Vec::new()
            }
            ResultBody::StateUpdated { scope, state } => {
                match self.set_state_deferred(scope, &state).await {
                    Ok(()) => {}
                    // The store failed: the runner relies on state that was not stored, and its next changes would be
                    // lost as well.
                    Err(ApiError { message, cause: code @ Some(_), .. }) => {
                        self.set_terminal(TerminalResult::Failed(RunError { message, code }));
                    }
                    Err(error) => self.refuse_result("state.updated", &error.to_string()),
                }
                Vec::new()
            }
            ResultBody::ArtifactCreated { name, media_type, content } => {
                if let Err(error) = self.store_artifact(name, media_type, &content) {
                    self.refuse_result("artifact.created", &error.to_string());
                }
                Vec::new()
            }
            ResultBody::ActionRequested(request) => {
                // The outcome is recorded; a runner that needs it calls the run API instead.
                if let Err(error) = self.perform_action(request).await {
                    tracing::debug!(run_id = %self.id(), %error, "an action was not performed");
                    if error.cause.as_ref().is_some_and(|cause| *cause != ErrorCode::ActionUnknown) {
                        self.set_terminal(TerminalResult::Failed(RunError {
                            message: error.message,
                            code: error.cause,
                        }));
                    } else if error.code != ApiErrorCode::RuntimeError {
                        self.progress().result_validator.anomalies.refused += 1;
                    }
                }
                Vec::new()
            }
            // The validator has parsed every result that can be parsed.
            ResultBody::Unread(_) => Vec::new(),
            ResultBody::RunCompleted { silent } => {
                self.set_terminal(TerminalResult::Completed { silent });
                Vec::new()
            }
            ResultBody::RunFailed { message, code } => {
                // Error codes of the host are reserved for its own runners: users follow the advice of their pages.
                let is_host_runner = self.runner.descriptor().source == RunnerSource::HostAdapter;
                let code = code.filter(|code| is_host_runner || !code.is_reserved());
                self.set_terminal(TerminalResult::Failed(RunError { message, code }));
                Vec::new()
            }
        }
    }

    /// Adds a delta and returns the text to show: the first delta of a further message begins with a separator.
    fn add_delta(&self, delta: &str) -> String {
        let mut progress = self.progress();
        let begins = progress.partial_text.is_empty() && !progress.completed_text.is_empty();
        progress.partial_text.push_str(delta);
        if begins { format!("{MESSAGE_SEPARATOR}{delta}") } else { delta.to_owned() }
    }

    /// Writes a complete message to the tape and to the output.
    pub(crate) fn complete_message(&self, content: Content, provider_meta: JsonObject) -> Vec<StreamEvent> {
        self.ingest_message();
        let text = content.text();
        let mut entry = EntryDraft::message(&ChatMessage::assistant(content));
        if !provider_meta.is_empty() {
            entry = entry.with_meta(meta_keys::PROVIDER, Value::Object(provider_meta));
        }
        if !self.is_command() {
            self.append(entry);
        }
        let was_streamed = !self.progress().partial_text.is_empty();
        let shown = if was_streamed || text.is_empty() { None } else { Some(self.add_delta(&text)) };
        let mut progress = self.progress();
        // A new string instead of `clear`, to release the memory of a long message.
        progress.partial_text = String::new();
        if !progress.completed_text.is_empty() && !text.is_empty() {
            progress.completed_text.push_str(MESSAGE_SEPARATOR);
        }
        progress.completed_text.push_str(&text);
        shown.map(StreamEvent::text).into_iter().collect()
    }

    /// Appends entries of the run after the message it serves.
    fn append_entries(&self, entries: Vec<EntryDraft>) {
        if !entries.is_empty() {
            self.ingest_message();
        }
        for entry in entries {
            self.append(entry);
        }
    }

    /// Writes the tool calls that the runner reported and that are not on the tape yet.
    pub(crate) fn flush_runner_tool_calls(&self) {
        let steps = self.progress().runner_tool_calls.finish();
        self.append_entries(steps);
    }

    /// Completes a message that was only streamed, because another result follows it.
    fn complete_partial(&self) {
        let partial = self.progress().partial_text.clone();
        if !partial.is_empty() {
            self.complete_message(Content::Text(partial), JsonObject::new());
        }
    }

    /// Drops a result that the validator rejected. Of a rejected message, the part that was streamed is kept.
    fn drop_result(&self, left: &DroppedResult) {
        if left.kind == "message.completed" {
            self.complete_partial();
        }
        self.record_dropped_result(&left.kind, &left.reason);
    }

    /// Drops a result whose request is refused.
    fn refuse_result(&self, kind: &str, why: &str) {
        self.progress().result_validator.anomalies.refused += 1;
        self.record_dropped_result(kind, why);
    }

    /// Records a dropped result on the tape, with the reason. If a runner sends many, only the first ones get entries
    /// of their own.
    fn record_dropped_result(&self, kind: &str, why: &str) {
        if self.progress().result_validator.should_record_drop() {
            tracing::warn!(run_id = %self.id(), kind, why, "a result was dropped");
            self.append(dropped_result_entry(kind, why));
        }
    }

    /// Drops the runner's stream. Results that are ready after the terminal one are counted; further ones are not
    /// awaited, and a panic has no effect on the run.
    fn count_trailing_results(&self, mut results: PanicSafeStream) {
        if !self.progress().result_validator.has_ended() {
            return;
        }
        let has_another = || matches!(results.stream().next().now_or_never(), Some(Some(_)));
        let count = || {
            std::iter::repeat_with(has_another).take(MAX_TRAILING_RESULTS).take_while(|is_result| *is_result).count()
        };
        if let Ok(trailing) = catch_unwind(AssertUnwindSafe(count)) {
            self.progress().result_validator.anomalies.after_end += trailing as u64;
        } else {
            tracing::warn!(run_id = %self.id(), "the runner panicked after the end of its run");
        }
    }

    /// Records the anomalies of the run's results, if there were any.
    pub(crate) fn record_anomalies(&self) {
        let anomalies = std::mem::take(&mut self.progress().result_validator.anomalies);
        if anomalies != ResultAnomalies::default() {
            tracing::info!(run_id = %self.id(), ?anomalies, "the results of the run had anomalies");
            self.append(TapeEvent::ResultsNoted(anomalies).into());
        }
    }

    fn set_terminal(&self, terminal: TerminalResult) {
        self.progress().terminal.get_or_insert(terminal);
    }

    /// Fails the run if the journal failed: its next steps could not be recorded.
    fn fail_on_store_error(&self, outcome: Result<(), StoreError>) {
        if let Err(error) = outcome {
            let error = api::store_api_error(&error);
            self.set_terminal(TerminalResult::Failed(RunError { message: error.message, code: error.cause }));
        }
    }

    /// Handles the end of the runner's stream: completes a message that was only streamed, and fails a run without a
    /// terminal result.
    fn finish_results(&self) -> Vec<StreamEvent> {
        self.set_terminal(TerminalResult::Failed(RunError {
            message: "the runner ended without a terminal result".to_owned(),
            code: Some(ErrorCode::RunFailed.into()),
        }));
        let terminal = self.progress().terminal.clone();
        match terminal {
            Some(TerminalResult::Failed(failure)) => {
                self.save_partial();
                let text = self.output();
                self.append(EntryDraft::error("run_model", &failure.message));
                vec![StreamEvent::error(failure.message), StreamEvent::Final { text, ok: false }]
            }
            Some(TerminalResult::Completed { .. }) | None => {
                // A run without output has read its message all the same.
                self.ingest_message();
                self.flush_runner_tool_calls();
                self.complete_partial();
                vec![StreamEvent::Final { text: self.output(), ok: true }]
            }
        }
    }

    /// Saves the streamed part of a message of an interrupted run, marked as interrupted.
    pub(crate) fn save_partial(&self) {
        self.flush_runner_tool_calls();
        self.write_deferred_handoffs();
        let (partial, is_stand_in) = {
            let mut progress = self.progress();
            (std::mem::take(&mut progress.partial_text), !progress.runner_started)
        };
        // The message of an interrupted run is recorded too, unless it may be a command.
        if is_stand_in || !partial.is_empty() || self.context.event.command_line().is_none() {
            self.ingest_message();
        }
        if !partial.is_empty() {
            let entry = EntryDraft::message(&ChatMessage::assistant(partial));
            self.append(entry.with_meta("interrupted", Value::Bool(true)));
        }
    }

    /// The completed messages of the run, as one text.
    pub(crate) fn output(&self) -> String {
        self.progress().completed_text.clone()
    }
}
