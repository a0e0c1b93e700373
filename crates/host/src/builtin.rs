//! The host's part of the built-in plugin: the stages a turn has when nobody replaces them.

use capstan_hooks::args::{Failure, Fault, MaybeInbound, Outgoing};
use capstan_hooks::points::{DispatchOutbound, LoadState, OnError, ResolveSession, RunModelStream, SaveState};
use capstan_hooks::{Inbound, Lifespan, Registrar, State};
use capstan_protocol::{Map, SessionId};
use serde_json::json;

use crate::runs::orchestrator::ActiveRun;
use crate::turns::staging::Staging;

/// Registers the host's stages. They register exactly as a plugin's do.
pub fn register(hooks: &mut Registrar) {
    hooks
        .on(ResolveSession, |message: Inbound| async move { Ok(Some(message.fallback_session())) })
        .on(LoadState, load_state)
        .on(RunModelStream, |state: State| async move {
            Ok(state.extensions().get::<ActiveRun>().and_then(|active| active.start_runner()))
        })
        .on(SaveState, |message: Inbound, failure: Failure| async move {
            if let Some(lifespan) = message.extensions().get::<Lifespan>() {
                lifespan.close(failure.0.as_deref()).await?;
            }
            Ok(Some(()))
        })
        .on(DispatchOutbound, |message: Outgoing, inbound: Inbound| async move {
            let Some(staging) = inbound.extensions().get::<Staging>() else { return Ok(Some(false)) };
            staging.stage((*message).clone());
            Ok(Some(true))
        })
        .on(OnError, |error: Fault, message: MaybeInbound| async move {
            if let Some(staging) = message.0.and_then(|inbound| inbound.extensions().get::<Staging>()) {
                staging.ask_for_notice(format!("Sorry, something went wrong: {}", error.public));
            }
            Ok(Some(()))
        });
}

async fn load_state(message: Inbound, session: SessionId) -> capstan_hooks::HookResult<Map> {
    if let Some(lifespan) = message.extensions().get::<Lifespan>() {
        lifespan.open().await?;
    }
    Ok(Some(Map::from_iter([(State::SESSION.to_owned(), json!(session))])))
}
