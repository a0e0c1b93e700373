//! One run: its authority, its journal, and how far it has come.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_hooks::State;
use capstan_hooks::args::Prompt;
use capstan_hooks::contracts::Runner;
use capstan_protocol::{
    ArtifactId, Binding, ChatMessage, Content, EntryId, EventKey, Grant, Map, RunContext, RunId, StreamEvent, Usage,
};
use capstan_tape::{Draft, EntryRef, Fact, StoreError};
use capstan_turn::RunFailure;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::budget::Budget;
use super::child::Child;
use super::steering::Steering;
use crate::actions::Actions;
use crate::api::door::Door;
use crate::api::open_calls::OpenCalls;
use crate::results::Sieve;
use crate::results::reported::Reported;
use crate::services::Services;
use crate::turns::journal::{Journal, Ticket};

/// One run, shared by everything that works for it.
pub(crate) struct Run {
    pub(crate) services: Arc<Services>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) runner: Arc<dyn Runner>,
    /// What its authority comes from.
    pub(crate) binding: Arc<Binding>,
    pub(crate) context: RunContext,
    pub(crate) prompt: Prompt,
    /// The events it serves, and where their messages stand if a run that was cut off took them in.
    pub(crate) serves: Vec<(EventKey, Option<EntryId>)>,
    /// What came meanwhile.
    pub(crate) steering: Arc<Steering>,
    pub(crate) state: State,
    pub(crate) cancelled: CancellationToken,
    /// What it may use.
    pub(crate) budget: Arc<Budget>,
    /// How many runs stand above it.
    pub(crate) depth: u32,
    /// Stream events of what the run does through the host: tool calls, usage.
    pub(crate) events: mpsc::Sender<StreamEvent>,
    pub(crate) progress: Mutex<Progress>,
    /// How its runner reaches the host.
    pub(crate) door: Door,
}

/// How far a run has come.
#[derive(Default)]
pub(crate) struct Progress {
    /// What it said in the messages that it completed.
    pub(crate) said: String,
    /// What it streamed of a message that is not complete yet.
    pub(crate) partial: String,
    pub(crate) usage: Option<Usage>,
    pub(crate) terminal: Option<Terminal>,
    /// Tool calls that the runner made itself.
    pub(crate) reported: Reported,
    /// What is looked at before a result is heeded.
    pub(crate) sieve: Sieve,
    /// The last error a stand-in emitted.
    pub(crate) last_error: Option<String>,
    /// The binding's runner was asked. Otherwise a plugin stands in for it.
    pub(crate) runner_started: bool,
    /// How many model calls it has made.
    pub(crate) calls: u32,
    /// Tool calls that have begun and not ended.
    pub(crate) open_calls: OpenCalls,
    /// Child runs that have not ended.
    pub(crate) children: Vec<Child>,
    /// What it had done on the platform.
    pub(crate) actions: Actions,
    /// How many artifacts it has made.
    artifacts: u32,
    message: MessageState,
    /// A step is open: its calls are recorded and not all of its results.
    step_open: bool,
    /// Handoffs asked for in the open step.
    deferred: Vec<Handoff>,
}

/// What became of the message a run serves.
#[derive(Default)]
enum MessageState {
    #[default]
    Untouched,
    /// It is on the tape, or about to be, and so are those that came meanwhile.
    TakenIn(Vec<Message>),
    /// It was a command, which is recorded as such.
    Command,
}

/// A message that a run took in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Message {
    /// Written by this run.
    New(Ticket),
    /// Written by a run that was cut off.
    Before(EntryId),
}

/// How a run ended.
#[derive(Debug, Clone)]
pub(crate) enum Terminal {
    Completed { silent: bool },
    Failed(RunFailure),
}

/// An anchor to be written.
pub(crate) struct Handoff {
    pub(crate) name: String,
    pub(crate) state: Map,
}

/// How many stream events of the run API may wait for the stream to be read.
pub(crate) const EVENT_QUEUE: usize = 64;

impl Run {
    pub(crate) fn id(&self) -> &RunId {
        &self.context.run_id
    }

    /// Its runner, as people are told of it.
    pub(crate) fn runner_in_words(&self) -> String {
        format!("the runner {}", self.runner.descriptor().id)
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.context.resources.grant
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows something to the channel. When nobody reads the stream any more there is nobody to show it to.
    pub(crate) async fn emit(&self, event: StreamEvent) {
        if self.events.send(event).await.is_err() {
            tracing::debug!(run_id = %self.id(), "stream event after the end of the stream");
        }
    }

    /// Shows something that is of no use later: where the stream is not read at once it is left out.
    pub(crate) fn show(&self, event: StreamEvent) {
        if self.events.try_send(event).is_err() {
            tracing::debug!(run_id = %self.id(), "stream event that nobody reads");
        }
    }

    /// Adds an entry to the run's journal.
    pub(crate) fn append(&self, entry: Draft) {
        self.journal.append(self.id(), entry);
    }

    /// Adds entries and the facts they rest on, so that no commit comes between them. `did` is the tool whose doing the
    /// last of them tells.
    pub(crate) fn append_together(&self, facts: Vec<Fact>, entries: Vec<Draft>, did: Option<String>) {
        self.journal.append_together(self.id(), facts, entries, did);
    }

    /// Names a new artifact of the run.
    pub(crate) fn next_artifact(&self) -> ArtifactId {
        let mut progress = self.progress();
        progress.artifacts += 1;
        ArtifactId::new(format!("{}.{}", self.id(), progress.artifacts))
    }

    /// Takes in what a child run is asked: no event stands for it.
    pub(crate) fn take_in_prompt(&self) {
        let prompt = Draft::message(&ChatMessage::user(self.prompt.0.as_ref().clone()));
        let ticket = self.journal.append_taken_in(self.id(), prompt, &[]);
        self.progress().message = MessageState::TakenIn(vec![Message::New(ticket)]);
    }

    /// Takes the message in: its prompt goes on the tape, once. What a run that was cut off took in stands there already.
    pub(crate) fn take_in(&self) {
        let mut progress = self.progress();
        if !matches!(progress.message, MessageState::Untouched) {
            return;
        }
        let mut taken = Vec::new();
        let mut new = Vec::new();
        for (key, message) in &self.serves {
            match message {
                None => new.push(key.clone()),
                Some(message) => {
                    let (key, run_id, message) = (key.clone(), self.id().clone(), *message);
                    taken.push(message);
                    self.journal.push(Fact::TakeIn { key, run_id, message: EntryRef::Id(message) });
                }
            }
        }
        taken.dedup();
        let mut taken: Vec<Message> = taken.into_iter().map(Message::Before).collect();
        if !new.is_empty() {
            let prompt = Draft::message(&ChatMessage::user(self.prompt.0.as_ref().clone()));
            taken.push(Message::New(self.journal.append_taken_in(self.id(), prompt, &new)));
        }
        progress.message = MessageState::TakenIn(taken);
    }

    /// Takes in a message that came meanwhile.
    pub(crate) fn take_in_steered(&self, event: &EventKey, prompt: Content) {
        self.take_in();
        let message = Draft::message(&ChatMessage::user(prompt));
        let ticket = self.journal.append_taken_in(self.id(), message, std::slice::from_ref(event));
        if let MessageState::TakenIn(taken) = &mut self.progress().message {
            taken.push(Message::New(ticket));
        }
    }

    /// The message is a command: it is recorded as such and never taken in.
    pub(crate) fn take_as_command(&self) {
        let mut progress = self.progress();
        if matches!(progress.message, MessageState::Untouched) {
            progress.message = MessageState::Command;
        }
    }

    /// Whether the run serves a command: what it says is recorded with the command and belongs to no view.
    pub(crate) fn serves_command(&self) -> bool {
        matches!(self.progress().message, MessageState::Command)
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
    pub(crate) async fn flush_to_read(&self) -> Result<(), StoreError> {
        if self.services.may_bypass_host(&self.runner.descriptor()) {
            self.journal.flush().await
        } else {
            self.journal.flush_in_order().await
        }
    }

    /// A step begins: handoffs wait until its results are recorded.
    pub(crate) fn open_step(&self) {
        self.progress().step_open = true;
    }

    /// The run is broken off: the handoffs that a tool was promised are written with its end.
    pub(crate) fn keep_deferred(&self) {
        let deferred = std::mem::take(&mut self.progress().deferred);
        for handoff in deferred {
            self.append_handoff(&handoff);
        }
    }

    /// Whether a handoff was asked for in the open step.
    pub(crate) fn hands_off(&self) -> bool {
        !self.progress().deferred.is_empty()
    }

    /// The step's results are in the journal: the handoffs that were asked for follow them. The messages that they name
    /// are on the tape since the step's calls are.
    pub(crate) fn close_step(&self) {
        self.progress().step_open = false;
        self.keep_deferred();
    }

    /// Writes an anchor, now or when the open step is done.
    pub(crate) async fn handoff(&self, handoff: Handoff) -> Result<(), StoreError> {
        match self.defer(handoff) {
            None => Ok(()),
            Some(handoff) => self.write_handoff(handoff).await,
        }
    }

    /// Keeps a handoff for the end of the open step; gives it back when none is open.
    fn defer(&self, handoff: Handoff) -> Option<Handoff> {
        let mut progress = self.progress();
        if !progress.step_open {
            return Some(handoff);
        }
        progress.deferred.push(handoff);
        None
    }

    /// An anchor inside a run names the messages that the run took in, so that views show them after the anchor.
    async fn write_handoff(&self, handoff: Handoff) -> Result<(), StoreError> {
        self.flush().await?;
        self.append_handoff(&handoff);
        self.flush().await
    }

    fn append_handoff(&self, handoff: &Handoff) {
        let taken_in = match &self.progress().message {
            MessageState::TakenIn(messages) => messages.clone(),
            MessageState::Untouched | MessageState::Command => Vec::new(),
        };
        let id = |message| match message {
            Message::New(ticket) => self.journal.id_of(ticket),
            Message::Before(id) => Some(id),
        };
        let [anchor, event] = Draft::handoff(&handoff.name, &handoff.state);
        self.append(anchor.naming(taken_in.into_iter().filter_map(id).map(EntryRef::Id).collect()));
        self.append(event);
    }
}
