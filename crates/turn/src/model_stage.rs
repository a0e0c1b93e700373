//! What the turn asks of the host for its model stage.

use async_trait::async_trait;
use capstan_hooks::args::PromptContent;
use capstan_hooks::{InboundEvent, TurnState};
use capstan_protocol::{OutboundMessage, SessionId, StreamEvent};

use crate::TurnError;

/// Runs the model stage: one run, under the binding that the event resolves to.
#[async_trait]
pub trait ModelStage: Send + Sync + 'static {
    /// Runs it to its end. Every stream event is emitted as it happens.
    async fn run(&self, input: StageInput, events: &dyn StageEventSink) -> Result<StageOutcome, TurnError>;

    /// Shows a stream event to the channel the turn answers on, if it wants to see it.
    async fn show_event(&self, event: &StreamEvent, inbound: &InboundEvent);

    /// Where a message about an event goes that was rendered for it; none where nothing is to be sent.
    fn route_outbound(&self, outbound: OutboundMessage, inbound: &InboundEvent) -> Option<OutboundMessage> {
        let _ = inbound;
        Some(outbound)
    }
}

/// What the model stage works on.
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
}

/// Is told what happens in the model stage, while it happens.
#[async_trait]
pub trait StageEventSink: Send + Sync {
    /// Something happened.
    async fn emit(&self, event: &StreamEvent);
}

/// How the model stage ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageOutcome {
    /// There is an output.
    Output(String),
    /// The runner said that nothing is to be said.
    Silent,
    /// No plugin, and not the built-in either, gave anything.
    NoOutput,
}
