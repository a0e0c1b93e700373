//! The host's part of the built-in plugin: the stages a turn has when nobody replaces them.

use capstan_hooks::args::{DispatchMessage, ErrorReport, MaybeInboundEvent, TurnFailure};
use capstan_hooks::points::{DispatchOutbound, LoadState, OnError, ResolveSession, RunModelStream, SaveState};
use capstan_hooks::{HookRegistrar, InboundEvent, TurnLifespan, TurnState};
use capstan_protocol::{JsonObject, SessionId};
use serde_json::json;

use crate::runs::orchestrator::ActiveRun;
use crate::turns::staging::TurnStaging;

/// Registers the host's stages. They register exactly as a plugin's do.
pub fn register(hooks: &mut HookRegistrar) {
    hooks
        .on(ResolveSession, |message: InboundEvent| async move { Ok(Some(message.fallback_session())) })
        .on(LoadState, load_state)
        .on(RunModelStream, |state: TurnState| async move {
            Ok(state.extensions().get::<ActiveRun>().and_then(|active| active.start_runner()))
        })
        .on(SaveState, |message: InboundEvent, failure: TurnFailure| async move {
            if let Some(lifespan) = message.extensions().get::<TurnLifespan>() {
                lifespan.close(failure.0.as_deref()).await?;
            }
            Ok(Some(()))
        })
        .on(DispatchOutbound, |message: DispatchMessage, inbound: InboundEvent| async move {
            let Some(staging) = inbound.extensions().get::<TurnStaging>() else { return Ok(Some(false)) };
            staging.stage((*message).clone());
            Ok(Some(true))
        })
        .on(OnError, |error: ErrorReport, message: MaybeInboundEvent| async move {
            if let Some(staging) = message.0.and_then(|inbound| inbound.extensions().get::<TurnStaging>()) {
                staging.request_notice(format!("Sorry, something went wrong: {}", error.public));
            }
            Ok(Some(()))
        });
}

async fn load_state(message: InboundEvent, session: SessionId) -> capstan_hooks::HookResult<JsonObject> {
    if let Some(lifespan) = message.extensions().get::<TurnLifespan>() {
        lifespan.open().await?;
    }
    Ok(Some(JsonObject::from_iter([(TurnState::SESSION_KEY.to_owned(), json!(session))])))
}
