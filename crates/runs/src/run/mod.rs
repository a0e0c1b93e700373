//! One run: its authority, its journal and its progress.

pub(crate) mod artifact_quota;
pub(crate) mod call_limiter;
pub(crate) mod open_calls;
mod output;
mod result_validator;
pub(crate) mod run_actions;
mod runner_tool_calls;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hooks::args::PromptContent;
use capstan_hooks::{HookTurn, TurnState};
use capstan_policy::Budget;
use capstan_protocol::{
    ArtifactId, Binding, ChatMessage, Content, ContentPart, EntryId, EventKey, EventOrigin, Grant, JsonObject, ModelId,
    RunContext, RunId, StreamEvent, TapeName, Usage,
};
use capstan_tape::{EntryDraft, EntryRef, Fact, RunStatus, StoreError};
use capstan_turn::RunError;
use tokio::sync::{OnceCell, mpsc};
use tokio_util::sync::CancellationToken;

use self::artifact_quota::ArtifactQuota;
use self::call_limiter::CallLimiter;
use self::open_calls::OpenCalls;
pub(crate) use self::output::dropped_result_entry;
pub(crate) use self::result_validator::{ResultValidator, ResultVerdict};
use self::run_actions::RunActions;
use self::runner_tool_calls::RunnerToolCalls;
use crate::active_runs::ActiveRunGuard;
use crate::environment::RunEnvironment;
use crate::journal::{Journal, PendingEntry};
use crate::runner_registry::RegisteredRunner;
use crate::steering::Steering;

/// One run, shared by its stream, its API and its child runs.
pub(crate) struct Run {
    pub(crate) environment: Arc<RunEnvironment>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) runner: Arc<RegisteredRunner>,
    /// Binding that the authority of the run is derived from.
    pub(crate) binding: Arc<Binding>,
    /// Origin of the events that the run serves, which its authority depends on.
    pub(crate) origin: EventOrigin,
    pub(crate) context: RunContext,
    pub(crate) prompt: PromptContent,
    /// Events that the run serves, with the entry of the message if an interrupted run ingested it.
    pub(crate) served_events: Vec<(EventKey, Option<EntryId>)>,
    /// Events that arrive during the run.
    pub(crate) steering: Arc<Steering>,
    pub(crate) state: TurnState,
    /// The turn, for the handles of its hooks.
    pub(crate) hook_turn: HookTurn,
    /// System prompt, once it is asked for: it does not change within a run.
    pub(crate) system_prompt: OnceCell<String>,
    pub(crate) cancel_token: CancellationToken,
    /// Steps and tokens that the run may use.
    pub(crate) budget: Arc<Budget>,
    /// Model that a child run was started with, instead of that of the session.
    pub(crate) model: Option<ModelId>,
    /// Number of ancestors: 0 for the run of a turn.
    pub(crate) depth: u32,
    /// Stream events of calls through the run API: tool calls, usage.
    pub(crate) events: mpsc::Sender<StreamEvent>,
    pub(crate) progress: Mutex<RunProgressState>,
    /// Limits and lifetime of the run API.
    pub(crate) call_limiter: CallLimiter,
    /// Quota of the artifacts that the run and its child runs create.
    pub(crate) artifact_quota: ArtifactQuota,
    /// Maximum duration of the run.
    pub(crate) timeout: Duration,
}

/// Progress of a run.
#[derive(Default)]
pub(crate) struct RunProgressState {
    /// Text of the completed messages.
    pub(crate) completed_text: String,
    /// Parts of the completed messages, with images, files and references to artifacts.
    completed_parts: Vec<ContentPart>,
    /// Streamed text of a message that is not complete yet.
    pub(crate) partial_text: String,
    pub(crate) usage: Option<Usage>,
    pub(crate) terminal: Option<TerminalResult>,
    /// Tool calls that the runner makes itself.
    pub(crate) runner_tool_calls: RunnerToolCalls,
    /// Validates results before they are applied.
    pub(crate) result_validator: ResultValidator,
    /// Last error that a plugin in place of the runner emitted.
    pub(crate) last_error: Option<String>,
    /// The run was cancelled, and its runner may still yield its last results.
    pub(crate) is_in_grace: bool,
    /// The binding's runner was started. Otherwise a plugin takes its place.
    pub(crate) runner_started: bool,
    /// Error of the comma command of the run, if the command failed.
    pub(crate) command_error: Option<String>,
    /// Number of model calls so far.
    pub(crate) model_calls: u32,
    /// Calls that have begun and not ended.
    pub(crate) open_calls: OpenCalls,
    /// Child runs that have not ended.
    pub(crate) children: Vec<ChildRun>,
    /// Number of child runs so far.
    pub(crate) child_run_count: u32,
    /// Platform actions that the run requested.
    pub(crate) actions: RunActions,
    /// Number of artifacts so far.
    artifact_count: u32,
    /// Events that arrived during the run and that it ingested.
    steered_events: Vec<EventKey>,
    message_state: MessageState,
    /// A step is open: its calls are recorded and not all of its results.
    is_step_open: bool,
    /// Handoffs requested in the open step.
    deferred_handoffs: Vec<PendingHandoff>,
    /// Completed child runs whose entries are merged when no call is open.
    deferred_merges: Vec<ChildMerge>,
    /// Registrations of merged children, whose end may not be committed yet.
    merged_children: Vec<ActiveRunGuard>,
    /// Number of forks that the run created.
    pub(crate) fork_count: u32,
}

/// Merge of a completed child run. The child counts as running until the merge is recorded, so that recovery closes its
/// fork after a crash.
pub(crate) struct ChildMerge {
    pub(crate) run_id: RunId,
    pub(crate) fork: TapeName,
    /// Entries that join the tape of the parent.
    pub(crate) entries: Vec<EntryDraft>,
    pub(crate) usage: Option<Usage>,
    /// Registration of the child.
    pub(crate) active_guard: Option<ActiveRunGuard>,
}

/// A child run that has not ended.
pub(crate) struct ChildRun {
    pub(crate) run: Arc<Run>,
    /// Registration from before the child is recorded until its end is.
    pub(crate) active_guard: ActiveRunGuard,
}

/// State of the message that a run serves.
#[derive(Default)]
enum MessageState {
    #[default]
    Pending,
    /// Ingested: on the tape or pending in the journal, like the messages that arrived during the run.
    Ingested(Vec<RunMessage>),
    /// A command, which is recorded as such.
    Command,
}

/// A message that a run ingested.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunMessage {
    /// Written by this run.
    New(PendingEntry),
    /// Written by an interrupted run.
    Earlier(EntryId),
}

/// End of a run.
#[derive(Debug, Clone)]
pub(crate) enum TerminalResult {
    Completed { silent: bool },
    Failed(RunError),
}

/// An anchor to be written.
pub(crate) struct PendingHandoff {
    pub(crate) name: String,
    pub(crate) state: JsonObject,
}

/// Maximum number of unread stream events of the run API.
pub(crate) const MAX_QUEUED_STREAM_EVENTS: usize = 64;

impl Run {
    pub(crate) fn id(&self) -> &RunId {
        &self.context.run_id
    }

    /// Name of the runner in error messages.
    pub(crate) fn runner_label(&self) -> String {
        format!("the runner {}", self.runner.descriptor.id)
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.context.resources.grant
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, RunProgressState> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an event to the stream, and waits while the stream is full. After the end of the stream it is discarded.
    pub(crate) async fn emit(&self, event: StreamEvent) {
        if self.events.send(event).await.is_err() {
            tracing::debug!(run_id = %self.id(), "discarded a stream event after the end of the stream");
        }
    }

    /// Sends an event that is of no use later: it is discarded if the stream is full or has ended.
    pub(crate) fn try_emit(&self, event: StreamEvent) {
        if self.events.try_send(event).is_err() {
            tracing::debug!(run_id = %self.id(), "discarded a stream event: the stream is full or has ended");
        }
    }

    /// Begins the grace period of a cancelled run, if its runner has one and was started. A plugin in place of the
    /// runner has none.
    pub(crate) fn begin_grace(&self) -> bool {
        let mut progress = self.progress();
        progress.is_in_grace = progress.runner_started && self.runner.descriptor.capabilities.interrupt;
        progress.is_in_grace
    }

    /// Adds an entry to the run's journal.
    pub(crate) fn append(&self, entry: EntryDraft) {
        self.journal.append(self.id(), entry);
    }

    /// Adds entries and the facts they depend on, so that no commit separates them. `effectful_tool` is the tool whose
    /// effect the last entry records.
    pub(crate) fn append_atomic(&self, facts: Vec<Fact>, entries: Vec<EntryDraft>, effectful_tool: Option<String>) {
        self.journal.append_atomic(self.id(), facts, entries, effectful_tool);
    }

    /// Id of a new artifact of the run.
    pub(crate) fn next_artifact_id(&self) -> ArtifactId {
        let mut progress = self.progress();
        progress.artifact_count += 1;
        ArtifactId::new(format!("{}.{}", self.id(), progress.artifact_count))
    }

    /// Ingests the prompt of a child run, which has no event.
    pub(crate) fn ingest_prompt(&self) {
        let prompt = EntryDraft::message(&ChatMessage::user(self.prompt.0.as_ref().clone()));
        let entry = self.journal.append_ingested(self.id(), prompt, &[]);
        self.progress().message_state = MessageState::Ingested(vec![RunMessage::New(entry)]);
    }

    /// Ingests the message, once: writes its prompt to the tape. A message that an interrupted run ingested is there
    /// already.
    pub(crate) fn ingest_message(&self) {
        let mut progress = self.progress();
        if !matches!(progress.message_state, MessageState::Pending) {
            return;
        }
        let mut earlier_messages = Vec::new();
        let mut new_events = Vec::new();
        for (key, message) in &self.served_events {
            match message {
                None => new_events.push(key.clone()),
                Some(message) => {
                    let (key, run_id, message) = (key.clone(), self.id().clone(), *message);
                    earlier_messages.push(message);
                    self.journal.push(Fact::IngestEvent { key, run_id, message: EntryRef::Id(message) });
                }
            }
        }
        earlier_messages.dedup();
        let mut ingested: Vec<RunMessage> = earlier_messages.into_iter().map(RunMessage::Earlier).collect();
        if !new_events.is_empty() {
            let prompt = EntryDraft::message(&ChatMessage::user(self.prompt.0.as_ref().clone()));
            ingested.push(RunMessage::New(self.journal.append_ingested(self.id(), prompt, &new_events)));
        }
        progress.message_state = MessageState::Ingested(ingested);
    }

    /// Ingests a message that arrived during the run.
    pub(crate) fn ingest_steered(&self, event: &EventKey, prompt: Content) {
        self.ingest_message();
        let message = EntryDraft::message(&ChatMessage::user(prompt));
        let entry = self.journal.append_ingested(self.id(), message, std::slice::from_ref(event));
        let mut progress = self.progress();
        progress.steered_events.push(event.clone());
        if let MessageState::Ingested(ingested) = &mut progress.message_state {
            ingested.push(RunMessage::New(entry));
        }
    }

    /// Returns true for an event that the run serves: one that it was started for, or one that it ingested. A child run
    /// serves the event of its parent.
    pub(crate) fn serves_event(&self, key: &EventKey) -> bool {
        EventKey::from(&self.context.event) == *key
            || self.served_events.iter().any(|(served, _)| served == key)
            || self.progress().steered_events.contains(key)
    }

    /// Line of the command that the run serves, if its event is one. A child run works for its parent and serves no
    /// command, whatever the event.
    pub(crate) fn command_line(&self) -> Option<&str> {
        self.context.event.command_line().filter(|_| self.depth == 0)
    }

    /// Marks the message as a command: it is recorded as such and never ingested. A message that is no command stays a
    /// message.
    pub(crate) fn mark_as_command(&self) {
        let mut progress = self.progress();
        if matches!(progress.message_state, MessageState::Pending) && self.command_line().is_some() {
            progress.message_state = MessageState::Command;
        }
    }

    /// Returns true if the run executes the command of its event. Its output is recorded with the command and is part of
    /// no view.
    pub(crate) fn is_command(&self) -> bool {
        matches!(self.progress().message_state, MessageState::Command)
    }

    /// Adds to the usage of the run.
    pub(crate) fn add_usage(&self, usage: &Usage) {
        let mut progress = self.progress();
        progress.usage = Some(progress.usage.take().unwrap_or_default().plus(usage));
    }

    /// Writes all pending entries to the tape, so that they can be read. The write is durable if the runner can pass
    /// what it reads to others without the host: ids that a power cut took back would be assigned again.
    pub(crate) async fn flush_before_read(&self) -> Result<(), StoreError> {
        if self.environment.can_bypass_host(&self.runner.descriptor) {
            self.journal.flush().await
        } else {
            self.journal.flush_ordered().await
        }
    }

    /// Merges a child now, or after the results of the open calls.
    pub(crate) fn merge_child(&self, merge: ChildMerge) {
        self.progress().deferred_merges.push(merge);
        if !self.is_step_open() {
            self.write_deferred_merges();
        }
    }

    /// Returns true while the results of a step are not all recorded.
    pub(crate) fn is_step_open(&self) -> bool {
        self.progress().is_step_open
    }

    /// Writes the deferred merges, unless a call that the runner reported is open. In an open step, for callers that have
    /// recorded all of its results.
    pub(crate) fn write_deferred_merges(&self) {
        let merges = {
            let mut progress = self.progress();
            if progress.runner_tool_calls.has_open_call() {
                return;
            }
            std::mem::take(&mut progress.deferred_merges)
        };
        self.close_children(merges, true);
    }

    /// Ends the children whose merge is still deferred at the end of the run: merged if the run completed, because no
    /// result follows any more, otherwise not.
    pub(crate) fn end_deferred_merges(&self, status: RunStatus) {
        let merges = std::mem::take(&mut self.progress().deferred_merges);
        self.close_children(merges, status == RunStatus::Completed);
    }

    /// Records the end of completed children, and merges or discards their forks, in one commit for each.
    fn close_children(&self, merges: Vec<ChildMerge>, is_merged: bool) {
        for ChildMerge { run_id, fork, entries, usage, active_guard } in merges {
            let ended_at = self.environment.options.clock.now();
            let tape = self.journal.tape();
            let entries = entries.into_iter().filter(|_| is_merged);
            let mut facts: Vec<Fact> = entries.map(|entry| Fact::AppendEntry { tape: tape.clone(), entry }).collect();
            facts.push(Fact::EndRun { run_id, status: RunStatus::Completed, usage, ended_at });
            facts.push(Fact::CloseFork { fork, is_merged });
            self.journal.extend(facts);
            self.progress().merged_children.extend(active_guard);
        }
    }

    /// Opens a step: handoffs are deferred until its results are recorded.
    pub(crate) fn open_step(&self) {
        self.progress().is_step_open = true;
    }

    /// Writes the deferred handoffs, which their callers rely on, also if the run is interrupted.
    pub(crate) fn write_deferred_handoffs(&self) {
        let deferred = std::mem::take(&mut self.progress().deferred_handoffs);
        for handoff in deferred {
            self.append_handoff(&handoff);
        }
    }

    /// Returns true if a handoff was requested in the open step.
    pub(crate) fn has_deferred_handoff(&self) -> bool {
        !self.progress().deferred_handoffs.is_empty()
    }

    /// Closes the step, once its results are in the journal, and writes the deferred handoffs after them. The messages
    /// that they name are on the tape since the calls of the step are.
    pub(crate) fn close_step(&self) {
        self.progress().is_step_open = false;
        self.write_deferred_handoffs();
    }

    /// Writes an anchor, now or at the end of the open step.
    pub(crate) async fn request_handoff(&self, handoff: PendingHandoff) -> Result<(), StoreError> {
        match self.defer_handoff(handoff) {
            None => Ok(()),
            Some(handoff) => self.commit_handoff(handoff).await,
        }
    }

    /// Defers a handoff to the end of the open step. Returns it if no step is open.
    fn defer_handoff(&self, handoff: PendingHandoff) -> Option<PendingHandoff> {
        let mut progress = self.progress();
        if !progress.is_step_open {
            return Some(handoff);
        }
        progress.deferred_handoffs.push(handoff);
        None
    }

    /// Commits a handoff. The messages that it names need their ids first.
    async fn commit_handoff(&self, handoff: PendingHandoff) -> Result<(), StoreError> {
        self.journal.flush().await?;
        self.append_handoff(&handoff);
        self.journal.flush().await
    }

    /// Appends the anchor of a handoff. It names the messages that the run ingested, so that views show them after it.
    fn append_handoff(&self, handoff: &PendingHandoff) {
        let ingested = match &self.progress().message_state {
            MessageState::Ingested(messages) => messages.clone(),
            MessageState::Pending | MessageState::Command => Vec::new(),
        };
        let entry_id = |message| match message {
            RunMessage::New(entry) => self.journal.entry_id(entry),
            RunMessage::Earlier(id) => Some(id),
        };
        let [anchor, event] = EntryDraft::handoff(&handoff.name, &handoff.state);
        self.append(anchor.with_named_messages(ingested.into_iter().filter_map(entry_id).map(EntryRef::Id).collect()));
        self.append(event);
    }
}
