//! Model stage: the contract between the pipeline and the host.

use async_trait::async_trait;
use capstan_hooks::args::{GrantedTools, PromptContent};
use capstan_hooks::{HookTurn, InboundEvent, TurnState};
use capstan_protocol::{Content, SessionId, StreamEvent};

use crate::TurnError;

/// Runs the model stage: one run, under the binding of the turn.
#[async_trait]
pub trait ModelStage: Send + Sync + 'static {
    /// Host data of one turn that the run works with. The pipeline passes it through.
    type Turn: Send + Sync;
    /// Report of the run.
    type Report: Send;

    /// Tools that the grant of a run about this event covers, which the prompt depends on.
    fn granted_tools(&self, inbound: &InboundEvent, turn: &Self::Turn) -> GrantedTools;

    /// Runs the stage to its end and emits every stream event as it occurs.
    async fn run(&self, input: StageInput, turn: &Self::Turn, events: &dyn StageEventSink)
    -> StageReport<Self::Report>;
}

/// Input of the model stage.
#[derive(Debug, Clone)]
pub struct StageInput {
    /// The event.
    pub inbound: InboundEvent,
    /// Its session.
    pub session: SessionId,
    /// The built prompt.
    pub prompt: PromptContent,
    /// The state of the turn.
    pub state: TurnState,
    /// The turn, for the handles of its hooks.
    pub hook_turn: HookTurn,
}

/// Receives stream events as they occur.
#[async_trait]
pub trait StageEventSink: Send + Sync {
    /// Receives the next event.
    async fn emit(&self, event: &StreamEvent);

    /// Receives text that belongs to the output so far and is not shown yet, because the run may still end silent.
    fn withhold(&self, _text: &str) {}
}

/// Report of a finished model stage.
#[derive(Debug)]
pub struct StageReport<R> {
    /// Result of the stage.
    pub outcome: Result<StageOutcome, TurnError>,
    /// Report of its run, if one was opened.
    pub run: Option<R>,
}

/// Result of a model stage.
#[derive(Debug, Clone, PartialEq)]
pub enum StageOutcome {
    /// An output.
    Output(Content),
    /// The runner explicitly sends no reply.
    Silent,
    /// Neither a plugin nor the built-in runner produced an output.
    NoOutput,
}
