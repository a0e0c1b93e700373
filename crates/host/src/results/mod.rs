//! From a runner's results to the tape, the stream and the output. The table in `docs/ARCHITECTURE.md` says what each
//! becomes. Tool and model calls that go through the run API are journalled there, before and after they are made.

mod held;
pub(crate) mod reported;
mod sieve;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use capstan_hooks::EventStream;
use capstan_protocol::{
    ApiError, ApiErrorCode, ChatMessage, Content, Map, ResultBody, RunResult, RunnerSource, StreamEvent,
};
use capstan_tape::{Draft, StoreError, keys};
use capstan_turn::{RunFailure, TurnError};
use futures::{FutureExt as _, StreamExt as _};
use held::Held;
use serde_json::{Value, json};
pub(crate) use sieve::{Left, Noted, Sieve, Sifted};
use tokio::sync::mpsc;

use crate::api;
use crate::runs::run::{Run, Terminal};

/// What stands between two messages of one run, where they are shown as one reply.
const BETWEEN_MESSAGES: &str = "\n\n";
/// How many results behind the end of a run are looked at.
const LOOKED_AT_BEHIND: usize = 64;

/// Asks the binding's runner, and gives what happens as stream events.
pub(crate) fn runner_stream(run: Arc<Run>, mut from_api: mpsc::Receiver<StreamEvent>) -> EventStream {
    run.progress().runner_started = true;
    run.journal.start_run(run.id());
    let stream = async_stream::stream! {
        let mut results = Held::new(api::ask_runner(&run));
        loop {
            tokio::select! {
                biased;
                Some(event) = from_api.recv() => yield event,
                result = results.stream().next() => {
                    let Some(result) = result else { break };
                    for event in run.take(result).await {
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
        run.count_behind(results);
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
pub(crate) fn dropped(kind: &str, why: &str) -> Draft {
    Draft::event("result.dropped", json!({ "type": kind, "reason": why })).hidden()
}

impl Run {
    /// Looks at a result as it came, and takes it in where it is heeded. Gives what the channel is shown.
    pub(crate) async fn take(&self, result: RunResult) -> Vec<StreamEvent> {
        let sifted = {
            let mut progress = self.progress();
            let partial = progress.partial.len();
            progress.sieve.sift(result, &self.services.settings.limits.results, partial)
        };
        match sifted {
            Sifted::Heed(result) => {
                let shown = self.accept(result).await;
                if self.progress().sieve.is_commit_due() {
                    self.journalled(self.flush().await);
                }
                shown
            }
            Sifted::Leave(left) => {
                if let Some(left) = left {
                    self.leave_out(&left);
                }
                Vec::new()
            }
            Sifted::End(failure) => {
                self.end(Terminal::Failed(failure));
                Vec::new()
            }
        }
    }

    /// Takes a result in: onto the tape, into the output. Gives what the channel is shown.
    async fn accept(&self, result: RunResult) -> Vec<StreamEvent> {
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
                if !self.progress().reported.expects(&call_id) {
                    self.progress().sieve.noted.malformed += 1;
                    self.dropped("tool.call.completed", "it answers no call that is open");
                    return Vec::new();
                }
                let output = self.services.settings.secrets.mask(output);
                let steps = self.progress().reported.answer(&call_id, output.clone());
                self.append_all(steps);
                self.journalled(self.flush().await);
                vec![StreamEvent::ToolResult { call_id, name, output }]
            }
            ResultBody::StateUpdated { state, .. } if state.len() as u64 > self.grant().state_limits.keys => {
                let (keys, most) = (state.len(), self.grant().state_limits.keys);
                self.not_allowed("state.updated", &format!("it has {keys} keys, more than the {most} allowed"));
                Vec::new()
            }
            ResultBody::StateUpdated { scope, state } => {
                match self.keep_state_later(scope, &state).await {
                    Ok(()) => {}
                    // What the runner believes to be kept is not, and what it does next would not be either.
                    Err(ApiError { message, cause: code @ Some(_), .. }) => {
                        self.end(Terminal::Failed(RunFailure { message, code }));
                    }
                    Err(refusal) => self.not_allowed("state.updated", &refusal.to_string()),
                }
                Vec::new()
            }
            ResultBody::ArtifactCreated { name, media_type, content } => {
                if let Err(refusal) = self.keep_artifact(name, media_type, &content) {
                    self.not_allowed("artifact.created", &refusal.to_string());
                }
                Vec::new()
            }
            ResultBody::ActionRequested(request) => {
                // What becomes of it is on record; a runner that wants to know asks through the run API.
                if let Err(error) = self.act(request).await {
                    tracing::debug!(run_id = %self.id(), %error, "an action was not done");
                    if error.cause.as_deref().is_some_and(|cause| cause != "action-unknown") {
                        self.end(Terminal::Failed(RunFailure { message: error.message, code: error.cause }));
                    } else if error.code != ApiErrorCode::RuntimeError {
                        self.progress().sieve.noted.refused += 1;
                    }
                }
                Vec::new()
            }
            // The sieve has read what can be read.
            ResultBody::Unread(_) => Vec::new(),
            ResultBody::RunCompleted { silent } => {
                self.end(Terminal::Completed { silent });
                Vec::new()
            }
            ResultBody::RunFailed { message, code } => {
                // What the host says of itself only the host says: people follow its advice.
                let is_of_host = self.runner.descriptor().source == RunnerSource::HostAdapter;
                let code = code.filter(|code| is_of_host || !TurnError::is_own(code));
                self.end(Terminal::Failed(RunFailure { message, code }));
                Vec::new()
            }
        }
    }

    /// The delta as it is shown: a new message of the same run is set apart from the one before.
    fn add_delta(&self, delta: &str) -> String {
        let mut progress = self.progress();
        let begins = progress.partial.is_empty() && !progress.said.is_empty();
        progress.partial.push_str(delta);
        if begins { format!("{BETWEEN_MESSAGES}{delta}") } else { delta.to_owned() }
    }

    /// A whole message: onto the tape, into the output.
    pub(crate) fn complete_message(&self, content: Content, provider_meta: Map) -> Vec<StreamEvent> {
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
        // Not its room: a long message may have taken much.
        progress.partial = String::new();
        if !progress.said.is_empty() && !text.is_empty() {
            progress.said.push_str(BETWEEN_MESSAGES);
        }
        progress.said.push_str(&text);
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

    /// A result that the sieve left out. Of a message that cannot be taken stays what was streamed of it.
    fn leave_out(&self, left: &Left) {
        if left.kind == "message.completed" {
            self.complete_partial();
        }
        self.dropped(&left.kind, &left.why);
    }

    /// A result that asked for what is not to be had.
    fn not_allowed(&self, kind: &str, why: &str) {
        self.progress().sieve.noted.refused += 1;
        self.dropped(kind, why);
    }

    /// A result that is not heeded: it stands on the tape that it came, and why nothing was done. Of a runner that sends
    /// many of them only the first are told by themselves.
    fn dropped(&self, kind: &str, why: &str) {
        if self.progress().sieve.tells_one_more() {
            tracing::warn!(run_id = %self.id(), kind, why, "a result was dropped");
            self.append(dropped(kind, why));
        }
    }

    /// Lets go of the runner. What it has ready behind the result that ended the run is counted; nobody waits for more,
    /// and that it crashes now changes nothing.
    fn count_behind(&self, mut results: Held) {
        if !self.progress().sieve.has_ended() {
            return;
        }
        let one_more = || matches!(results.stream().next().now_or_never(), Some(Some(_)));
        let count = || std::iter::repeat_with(one_more).take(LOOKED_AT_BEHIND).take_while(|there| *there).count();
        if let Ok(behind) = catch_unwind(AssertUnwindSafe(count)) {
            self.progress().sieve.noted.after_end += behind as u64;
        } else {
            tracing::warn!(run_id = %self.id(), "the runner crashed after the end of its run");
        }
    }

    /// Tells at the end of a run what was odd about its results, if anything was.
    pub(crate) fn tell_noted(&self) {
        let noted = std::mem::take(&mut self.progress().sieve.noted);
        if noted != Noted::default() {
            tracing::info!(run_id = %self.id(), ?noted, "some results were odd");
            self.append(Draft::event("results.noted", json!(noted)).hidden());
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
                // One that says nothing has heard it all the same.
                self.take_in();
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
        // Whatever became of the run, its message was said. One that looks like a command may be one.
        if is_stand_in || !partial.is_empty() || self.context.event.command_line().is_none() {
            self.take_in();
        }
        if !partial.is_empty() {
            let entry = Draft::message(&ChatMessage::assistant(partial));
            self.append(entry.with_meta("interrupted", Value::Bool(true)));
        }
    }

    /// What the run has said, as one text.
    pub(crate) fn output(&self) -> String {
        self.progress().said.clone()
    }
}
