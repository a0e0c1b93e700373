//! What the turn asks of the host for its model stage.

use async_trait::async_trait;
use capstan_hooks::args::Prompt;
use capstan_hooks::{Inbound, State};
use capstan_protocol::{Outbound, SessionId, StreamEvent};

use crate::TurnError;

/// Runs the model stage: one run, under the binding that the event resolves to.
#[async_trait]
pub trait ModelStage: Send + Sync + 'static {
    /// Runs it to its end. Every stream event is emitted as it happens.
    async fn run(&self, input: StageInput, events: &dyn StageEvents) -> Result<StageEnd, TurnError>;

    /// Shows a stream event to the channel the turn answers on, if it wants to see it.
    async fn show(&self, event: &StreamEvent, inbound: &Inbound);

    /// Where a message about an event goes that was rendered for it; none where nothing is to be sent.
    fn route(&self, outbound: Outbound, inbound: &Inbound) -> Option<Outbound> {
        let _ = inbound;
        Some(outbound)
    }
}

/// What the model stage works on.
#[derive(Debug, Clone)]
pub struct StageInput {
    /// The event.
    pub inbound: Inbound,
    /// Its session.
    pub session: SessionId,
    /// The built prompt.
    pub prompt: Prompt,
    /// The state of the turn.
    pub state: State,
}

/// Is told what happens in the model stage, while it happens.
#[async_trait]
pub trait StageEvents: Send + Sync {
    /// Something happened.
    async fn emit(&self, event: &StreamEvent);
}

/// How the model stage ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageEnd {
    /// There is an output.
    Output(String),
    /// The runner said that nothing is to be said.
    Silent,
    /// No plugin, and not the built-in either, gave anything.
    Nothing,
}
