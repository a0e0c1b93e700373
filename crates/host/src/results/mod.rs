//! From a runner's results to the tape, the stream and the output. The table in `docs/ARCHITECTURE.md` says what each
//! becomes. Tool and model calls that go through the run API are journalled there, before and after they are made.

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

/// What stands between two messages of one run, where they are shown as one reply.
const MESSAGE_SEPARATOR: &str = "\n\n";
/// How many results behind the end of a run are looked at.
const MAX_TRAILING_RESULTS: usize = 64;

/// Asks the binding's runner, and gives what happens as stream events.
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
            // A runner that always has a result ready must not keep the deadline, or anybody else, from being heard.
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

/// The entry that tells of a result that was not heeded.
pub(crate) fn dropped_result_entry(kind: &str, why: &str) -> EntryDraft {
    TapeEvent::ResultDropped(DroppedResult { kind: kind.to_owned(), reason: why.to_owned() }).into()
}

impl Run {
    /// Looks at a result as it came, and takes it in where it is heeded. Gives what the channel is shown.
    pub(crate) async fn handle_result(&self, result: RunResult) -> Vec<StreamEvent> {
        let sifted = {
            let mut progress = self.progress();
            let partial = progress.partial_text.len();
            progress.result_validator.validate(result, &self.services.options.limits.results, partial)
        };
        match sifted {
            ResultVerdict::Accept(result) => {
                let shown = self.apply_result(result).await;
                if self.progress().result_validator.should_commit() {
                    self.fail_on_store_error(self.flush().await);
                }
                shown
            }
            ResultVerdict::Drop(left) => {
                if let Some(left) = left {
                    self.drop_result(&left);
                }
                Vec::new()
            }
            ResultVerdict::EndRun(failure) => {
                self.set_terminal(TerminalResult::Failed(failure));
                Vec::new()
            }
        }
    }

    /// Takes a result in: onto the tape, into the output. Gives what the channel is shown.
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
                    self.record_dropped_result("tool.call.completed", "it answers no call that is open");
                    return Vec::new();
                }
                let output = self.services.options.secret_masker.mask_output(output);
                let steps = self.progress().runner_tool_calls.complete(&call_id, output.clone());
                self.append_entries(steps);
                self.fail_on_store_error(self.flush().await);
                vec![StreamEvent::ToolResult { call_id, name, output }]
            }
            ResultBody::StateUpdated { state, .. } if state.len() as u64 > self.grant().state_limits.keys => {
                let (keys, most) = (state.len(), self.grant().state_limits.keys);
                self.refuse_result("state.updated", &format!("it has {keys} keys, more than the {most} allowed"));
                Vec::new()
            }
            ResultBody::StateUpdated { scope, state } => {
                match self.set_state_deferred(scope, &state).await {
                    Ok(()) => {}
                    // What the runner believes to be kept is not, and what it does next would not be either.
                    Err(ApiError { message, cause: code @ Some(_), .. }) => {
                        self.set_terminal(TerminalResult::Failed(RunError { message, code }));
                    }
                    Err(refusal) => self.refuse_result("state.updated", &refusal.to_string()),
                }
                Vec::new()
            }
            ResultBody::ArtifactCreated { name, media_type, content } => {
                if let Err(refusal) = self.store_artifact(name, media_type, &content) {
                    self.refuse_result("artifact.created", &refusal.to_string());
                }
                Vec::new()
            }
            ResultBody::ActionRequested(request) => {
                // What becomes of it is on record; a runner that wants to know asks through the run API.
                if let Err(error) = self.perform_action(request).await {
                    tracing::debug!(run_id = %self.id(), %error, "an action was not done");
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
            // The sieve has read what can be read.
            ResultBody::Unread(_) => Vec::new(),
            ResultBody::RunCompleted { silent } => {
                self.set_terminal(TerminalResult::Completed { silent });
                Vec::new()
            }
            ResultBody::RunFailed { message, code } => {
                // What the host says of itself only the host says: people follow its advice.
                let is_of_host = self.runner.descriptor().source == RunnerSource::HostAdapter;
                let code = code.filter(|code| is_of_host || !code.is_reserved());
                self.set_terminal(TerminalResult::Failed(RunError { message, code }));
                Vec::new()
            }
        }
    }

    /// The delta as it is shown: a new message of the same run is set apart from the one before.
    fn add_delta(&self, delta: &str) -> String {
        let mut progress = self.progress();
        let begins = progress.partial_text.is_empty() && !progress.completed_text.is_empty();
        progress.partial_text.push_str(delta);
        if begins { format!("{MESSAGE_SEPARATOR}{delta}") } else { delta.to_owned() }
    }

    /// A whole message: onto the tape, into the output.
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
        // Not its room: a long message may have taken much.
        progress.partial_text = String::new();
        if !progress.completed_text.is_empty() && !text.is_empty() {
            progress.completed_text.push_str(MESSAGE_SEPARATOR);
        }
        progress.completed_text.push_str(&text);
        shown.map(StreamEvent::text).into_iter().collect()
    }

    /// Entries of the run, which stand after the message it serves.
    fn append_entries(&self, entries: Vec<EntryDraft>) {
        if !entries.is_empty() {
            self.ingest_message();
        }
        for entry in entries {
            self.append(entry);
        }
    }

    /// What the runner told of its own tool calls and is not on the tape yet.
    pub(crate) fn flush_runner_tool_calls(&self) {
        let steps = self.progress().runner_tool_calls.finish();
        self.append_entries(steps);
    }

    /// What was only streamed is a message of its own, once something else follows it.
    fn complete_partial(&self) {
        let partial = self.progress().partial_text.clone();
        if !partial.is_empty() {
            self.complete_message(Content::Text(partial), JsonObject::new());
        }
    }

    /// A result that the sieve left out. Of a message that cannot be taken stays what was streamed of it.
    fn drop_result(&self, left: &DroppedResult) {
        if left.kind == "message.completed" {
            self.complete_partial();
        }
        self.record_dropped_result(&left.kind, &left.reason);
    }

    /// A result that asked for what is not to be had.
    fn refuse_result(&self, kind: &str, why: &str) {
        self.progress().result_validator.anomalies.refused += 1;
        self.record_dropped_result(kind, why);
    }

    /// A result that is not heeded: it stands on the tape that it came, and why nothing was done. Of a runner that sends
    /// many of them only the first are told by themselves.
    fn record_dropped_result(&self, kind: &str, why: &str) {
        if self.progress().result_validator.should_record_drop() {
            tracing::warn!(run_id = %self.id(), kind, why, "a result was dropped");
            self.append(dropped_result_entry(kind, why));
        }
    }

    /// Lets go of the runner. What it has ready behind the result that ended the run is counted; nobody waits for more,
    /// and that it crashes now changes nothing.
    fn count_trailing_results(&self, mut results: PanicSafeStream) {
        if !self.progress().result_validator.has_ended() {
            return;
        }
        let one_more = || matches!(results.stream().next().now_or_never(), Some(Some(_)));
        let count = || std::iter::repeat_with(one_more).take(MAX_TRAILING_RESULTS).take_while(|there| *there).count();
        if let Ok(behind) = catch_unwind(AssertUnwindSafe(count)) {
            self.progress().result_validator.anomalies.after_end += behind as u64;
        } else {
            tracing::warn!(run_id = %self.id(), "the runner crashed after the end of its run");
        }
    }

    /// Tells at the end of a run what was odd about its results, if anything was.
    pub(crate) fn record_anomalies(&self) {
        let noted = std::mem::take(&mut self.progress().result_validator.anomalies);
        if noted != ResultAnomalies::default() {
            tracing::info!(run_id = %self.id(), ?noted, "some results were odd");
            self.append(TapeEvent::ResultsNoted(noted).into());
        }
    }

    fn set_terminal(&self, terminal: TerminalResult) {
        self.progress().terminal.get_or_insert(terminal);
    }

    /// A journal that fails ends the run: what it does next would not be on record.
    fn fail_on_store_error(&self, outcome: Result<(), StoreError>) {
        if let Err(error) = outcome {
            let failed = api::store_api_error(&error);
            self.set_terminal(TerminalResult::Failed(RunError { message: failed.message, code: failed.cause }));
        }
    }

    /// The end of the runner's stream: a message that was only streamed is completed, a missing end is a failure.
    fn finish_results(&self) -> Vec<StreamEvent> {
        self.set_terminal(TerminalResult::Failed(RunError {
            message: "the runner ended without saying how".to_owned(),
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
                // One that says nothing has heard it all the same.
                self.ingest_message();
                self.flush_runner_tool_calls();
                self.complete_partial();
                vec![StreamEvent::Final { text: self.output(), ok: true }]
            }
        }
    }

    /// A run that was broken off: what it had said of a message stays on the tape, marked as unfinished.
    pub(crate) fn save_partial(&self) {
        self.flush_runner_tool_calls();
        self.write_deferred_handoffs();
        let (partial, is_stand_in) = {
            let mut progress = self.progress();
            (std::mem::take(&mut progress.partial_text), !progress.runner_started)
        };
        // Whatever became of the run, its message was said. One that looks like a command may be one.
        if is_stand_in || !partial.is_empty() || self.context.event.command_line().is_none() {
            self.ingest_message();
        }
        if !partial.is_empty() {
            let entry = EntryDraft::message(&ChatMessage::assistant(partial));
            self.append(entry.with_meta("interrupted", Value::Bool(true)));
        }
    }

    /// What the run has said, as one text.
    pub(crate) fn output(&self) -> String {
        self.progress().completed_text.clone()
    }
}
