//! One run: its authority, its journal, and how far it has come.

pub(crate) mod call_limiter;
pub(crate) mod open_calls;
mod output;
mod result_validator;
pub(crate) mod run_actions;
mod runner_tool_calls;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_hooks::TurnState;
use capstan_hooks::args::PromptContent;
use capstan_hooks::contracts::Runner;
use capstan_policy::Budget;
use capstan_protocol::{
    ArtifactId, Binding, ChatMessage, Content, EntryId, EventKey, Grant, JsonObject, RunContext, RunId, StreamEvent,
    Usage,
};
use capstan_tape::{EntryDraft, EntryRef, Fact, StoreError};
use capstan_turn::RunError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::call_limiter::CallLimiter;
use self::open_calls::OpenCalls;
pub(crate) use self::output::dropped_result_entry;
pub(crate) use self::result_validator::{ResultValidator, ResultVerdict};
use self::run_actions::RunActions;
use self::runner_tool_calls::RunnerToolCalls;
use crate::active_runs::ActiveRunGuard;
use crate::environment::RunEnvironment;
use crate::journal::{EntryTicket, Journal};
use crate::steering::Steering;

/// One run, shared by everything that works for it.
pub(crate) struct Run {
    pub(crate) environment: Arc<RunEnvironment>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) runner: Arc<dyn Runner>,
    /// What its authority comes from.
    pub(crate) binding: Arc<Binding>,
    pub(crate) context: RunContext,
    pub(crate) prompt: PromptContent,
    /// The events it serves, and where their messages stand if a run that was cut off took them in.
    pub(crate) served_events: Vec<(EventKey, Option<EntryId>)>,
    /// What came meanwhile.
    pub(crate) steering: Arc<Steering>,
    pub(crate) state: TurnState,
    pub(crate) cancelled: CancellationToken,
    /// What it may use.
    pub(crate) budget: Arc<Budget>,
    /// How many runs stand above it.
    pub(crate) depth: u32,
    /// Stream events of what the run does through the host: tool calls, usage.
    pub(crate) events: mpsc::Sender<StreamEvent>,
    pub(crate) progress: Mutex<RunProgressState>,
    /// How its runner reaches the host.
    pub(crate) call_limiter: CallLimiter,
}

/// How far a run has come.
#[derive(Default)]
pub(crate) struct RunProgressState {
    /// What it said in the messages that it completed.
    pub(crate) completed_text: String,
    /// What it streamed of a message that is not complete yet.
    pub(crate) partial_text: String,
    pub(crate) usage: Option<Usage>,
    pub(crate) terminal: Option<TerminalResult>,
    /// Tool calls that the runner made itself.
    pub(crate) runner_tool_calls: RunnerToolCalls,
    /// What is looked at before a result is heeded.
    pub(crate) result_validator: ResultValidator,
    /// The last error a stand-in emitted.
    pub(crate) last_error: Option<String>,
    /// The binding's runner was asked. Otherwise a plugin stands in for it.
    pub(crate) runner_started: bool,
    /// How many model calls it has made.
    pub(crate) model_calls: u32,
    /// Tool calls that have begun and not ended.
    pub(crate) open_calls: OpenCalls,
    /// Child runs that have not ended.
    pub(crate) children: Vec<ChildRun>,
    /// What it had done on the platform.
    pub(crate) actions: RunActions,
    /// How many artifacts it has made.
    artifact_count: u32,
    message_state: MessageState,
    /// A step is open: its calls are recorded and not all of its results.
    is_step_open: bool,
    /// Handoffs asked for in the open step.
    deferred_handoffs: Vec<PendingHandoff>,
}

/// A child run that has not ended.
pub(crate) struct ChildRun {
    pub(crate) run: Arc<Run>,
    /// Registration from before the child is on record until its end is.
    pub(crate) active_guard: ActiveRunGuard,
}

/// What became of the message a run serves.
#[derive(Default)]
enum MessageState {
    #[default]
    Pending,
    /// It is on the tape, or about to be, and so are those that came meanwhile.
    Ingested(Vec<RunMessage>),
    /// It was a command, which is recorded as such.
    Command,
}

/// A message that a run took in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunMessage {
    /// Written by this run.
    New(EntryTicket),
    /// Written by a run that was cut off.
    Earlier(EntryId),
}

/// How a run ended.
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

/// How many stream events of the run API may wait for the stream to be read.
pub(crate) const MAX_QUEUED_STREAM_EVENTS: usize = 64;

impl Run {
    pub(crate) fn id(&self) -> &RunId {
        &self.context.run_id
    }

    /// Its runner, as people are told of it.
    pub(crate) fn runner_label(&self) -> String {
        format!("the runner {}", self.runner.descriptor().id)
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.context.resources.grant
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, RunProgressState> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows something to the channel. When nobody reads the stream any more there is nobody to show it to.
    pub(crate) async fn emit(&self, event: StreamEvent) {
        if self.events.send(event).await.is_err() {
            tracing::debug!(run_id = %self.id(), "stream event after the end of the stream");
        }
    }

    /// Shows something that is of no use later: where the stream is not read at once it is left out.
    pub(crate) fn try_emit(&self, event: StreamEvent) {
        if self.events.try_send(event).is_err() {
            tracing::debug!(run_id = %self.id(), "stream event that nobody reads");
        }
    }

    /// Adds an entry to the run's journal.
    pub(crate) fn append(&self, entry: EntryDraft) {
        self.journal.append(self.id(), entry);
    }

    /// Adds entries and the facts they rest on, so that no commit comes between them. `did` is the tool whose doing the
    /// last of them tells.
    pub(crate) fn append_atomic(&self, facts: Vec<Fact>, entries: Vec<EntryDraft>, did: Option<String>) {
        self.journal.append_atomic(self.id(), facts, entries, did);
    }

    /// Names a new artifact of the run.
    pub(crate) fn next_artifact_id(&self) -> ArtifactId {
        let mut progress = self.progress();
        progress.artifact_count += 1;
        ArtifactId::new(format!("{}.{}", self.id(), progress.artifact_count))
    }

    /// Takes in what a child run is asked: no event stands for it.
    pub(crate) fn ingest_prompt(&self) {
        let prompt = EntryDraft::message(&ChatMessage::user(self.prompt.0.as_ref().clone()));
        let ticket = self.journal.append_ingested(self.id(), prompt, &[]);
        self.progress().message_state = MessageState::Ingested(vec![RunMessage::New(ticket)]);
    }

    /// Takes the message in: its prompt goes on the tape, once. What a run that was cut off took in stands there already.
    pub(crate) fn ingest_message(&self) {
        let mut progress = self.progress();
        if !matches!(progress.message_state, MessageState::Pending) {
            return;
        }
        let mut taken = Vec::new();
        let mut new = Vec::new();
        for (key, message) in &self.served_events {
            match message {
                None => new.push(key.clone()),
                Some(message) => {
                    let (key, run_id, message) = (key.clone(), self.id().clone(), *message);
                    taken.push(message);
                    self.journal.push(Fact::IngestEvent { key, run_id, message: EntryRef::Id(message) });
                }
            }
        }
        taken.dedup();
        let mut taken: Vec<RunMessage> = taken.into_iter().map(RunMessage::Earlier).collect();
        if !new.is_empty() {
            let prompt = EntryDraft::message(&ChatMessage::user(self.prompt.0.as_ref().clone()));
            taken.push(RunMessage::New(self.journal.append_ingested(self.id(), prompt, &new)));
        }
        progress.message_state = MessageState::Ingested(taken);
    }

    /// Takes in a message that came meanwhile.
    pub(crate) fn ingest_steered(&self, event: &EventKey, prompt: Content) {
        self.ingest_message();
        let message = EntryDraft::message(&ChatMessage::user(prompt));
        let ticket = self.journal.append_ingested(self.id(), message, std::slice::from_ref(event));
        if let MessageState::Ingested(taken) = &mut self.progress().message_state {
            taken.push(RunMessage::New(ticket));
        }
    }

    /// The message is a command: it is recorded as such and never taken in.
    pub(crate) fn mark_as_command(&self) {
        let mut progress = self.progress();
        if matches!(progress.message_state, MessageState::Pending) {
            progress.message_state = MessageState::Command;
        }
    }

    /// Whether the run serves a command: what it says is recorded with the command and belongs to no view.
    pub(crate) fn is_command(&self) -> bool {
        matches!(self.progress().message_state, MessageState::Command)
    }

    /// Adds what was used.
    pub(crate) fn add_usage(&self, usage: &Usage) {
        let mut progress = self.progress();
        progress.usage = Some(progress.usage.take().unwrap_or_default().plus(usage));
    }

    /// Commits what waits.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        self.journal.flush().await
    }

    /// All that the run has written is on its tape, to be read. It is on disk too where the runner may tell others of what it
    /// reads: ids that a power cut took back would be given again.
    pub(crate) async fn flush_before_read(&self) -> Result<(), StoreError> {
        if self.environment.can_bypass_host(&self.runner.descriptor()) {
            self.journal.flush().await
        } else {
            self.journal.flush_ordered().await
        }
    }

    /// A step begins: handoffs wait until its results are recorded.
    pub(crate) fn open_step(&self) {
        self.progress().is_step_open = true;
    }

    /// The run is broken off: the handoffs that a tool was promised are written with its end.
    pub(crate) fn write_deferred_handoffs(&self) {
        let deferred = std::mem::take(&mut self.progress().deferred_handoffs);
        for handoff in deferred {
            self.append_handoff(&handoff);
        }
    }

    /// Whether a handoff was asked for in the open step.
    pub(crate) fn has_deferred_handoff(&self) -> bool {
        !self.progress().deferred_handoffs.is_empty()
    }

    /// The step's results are in the journal: the handoffs that were asked for follow them. The messages that they name
    /// are on the tape since the step's calls are.
    pub(crate) fn close_step(&self) {
        self.progress().is_step_open = false;
        self.write_deferred_handoffs();
    }

    /// Writes an anchor, now or when the open step is done.
    pub(crate) async fn request_handoff(&self, handoff: PendingHandoff) -> Result<(), StoreError> {
        match self.defer_handoff(handoff) {
            None => Ok(()),
            Some(handoff) => self.commit_handoff(handoff).await,
        }
    }

    /// Keeps a handoff for the end of the open step; gives it back when none is open.
    fn defer_handoff(&self, handoff: PendingHandoff) -> Option<PendingHandoff> {
        let mut progress = self.progress();
        if !progress.is_step_open {
            return Some(handoff);
        }
        progress.deferred_handoffs.push(handoff);
        None
    }

    /// An anchor inside a run names the messages that the run took in, so that views show them after the anchor.
    async fn commit_handoff(&self, handoff: PendingHandoff) -> Result<(), StoreError> {
        self.flush().await?;
        self.append_handoff(&handoff);
        self.flush().await
    }

    fn append_handoff(&self, handoff: &PendingHandoff) {
        let taken_in = match &self.progress().message_state {
            MessageState::Ingested(messages) => messages.clone(),
            MessageState::Pending | MessageState::Command => Vec::new(),
        };
        let id = |message| match message {
            RunMessage::New(ticket) => self.journal.entry_id(ticket),
            RunMessage::Earlier(id) => Some(id),
        };
        let [anchor, event] = EntryDraft::handoff(&handoff.name, &handoff.state);
        self.append(anchor.with_named_messages(taken_in.into_iter().filter_map(id).map(EntryRef::Id).collect()));
        self.append(event);
    }
}
