//! Executes the turns of sessions.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use capstan_delivery::{ChannelDirectory, ChannelTarget};
use capstan_hooks::{InboundEvent, TurnLifespan};
use capstan_protocol::ErrorCode;
use capstan_runs::{ActiveTurn, Orchestrator, RunReport};
use capstan_turn::{RunError, TurnContext, TurnError, TurnPipeline, TurnReport};
use futures::FutureExt as _;

use crate::accepted_event::TurnBatch;

/// Timeout for closing the lifespan of a message.
const LIFESPAN_CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Executes turns.
pub(crate) struct TurnExecutor {
    pub(crate) turn_pipeline: Arc<TurnPipeline<Orchestrator>>,
    pub(crate) channels: ChannelDirectory,
}

impl TurnExecutor {
    /// Runs the turn of a batch. A panic in the turn, which neither hooks nor runners can cause, becomes a failed report.
    pub(crate) async fn run_turn(&self, batch: &TurnBatch, turn: &ActiveTurn) -> TurnReport<RunReport> {
        let is_gone = batch.lead.is_caller_gone;
        let reply_target = ChannelTarget::new(&self.channels, &batch.inbound, turn.binding.clone(), is_gone);
        let context = TurnContext { turn, reply_target: &reply_target };
        let turn = async {
            let report = self.turn_pipeline.process(batch.inbound.clone(), batch.lead.session.clone(), &context).await;
            close_lifespan(&batch.inbound, report.result.as_ref().err()).await;
            report
        };
        AssertUnwindSafe(turn).catch_unwind().await.unwrap_or_else(|_| {
            let (message, code) = ("the turn crashed".to_owned(), Some(ErrorCode::RunFailed.into()));
            TurnReport::failed(TurnError::Run(RunError { message, code }), None)
        })
    }
}

/// Closes the lifespan of a message. A turn that failed before its prompt was built has not called `save_state`, which
/// would have closed the lifespan.
async fn close_lifespan(inbound: &InboundEvent, error: Option<&TurnError>) {
    let Some(lifespan) = inbound.extensions().get::<TurnLifespan>() else { return };
    let failure = error.map(ToString::to_string);
    match tokio::time::timeout(LIFESPAN_CLOSE_TIMEOUT, lifespan.close(failure.as_deref())).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the lifespan of a message did not close"),
        Err(_) => tracing::warn!("the lifespan of a message did not close in time"),
    }
}
