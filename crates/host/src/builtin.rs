//! Host part of the built-in plugin: the default stages of a turn, which plugins may replace.

use capstan_hooks::args::{BoundRunner, DispatchMessage, ErrorReport, NoticeRequest, TurnFailure};
use capstan_hooks::points::{DispatchOutbound, LoadState, OnError, ResolveSession, RunModelStream, SaveState};
use capstan_hooks::{HookRegistrar, InboundEvent, TurnLifespan, TurnState};
use capstan_protocol::{JsonObject, SessionId};
use serde_json::json;

/// Registers the default stages, in the same way as a plugin registers its own.
pub fn register(hooks: &mut HookRegistrar) {
    hooks
        .on(ResolveSession, |message: InboundEvent| async move { Ok(Some(message.fallback_session())) })
        .on(LoadState, load_state)
        .on(RunModelStream, |runner: BoundRunner| async move { Ok(runner.start()) })
        .on(SaveState, |message: InboundEvent, failure: TurnFailure| async move {
            if let Some(lifespan) = message.extensions().get::<TurnLifespan>() {
                lifespan.close(failure.0.as_deref()).await?;
            }
            Ok(Some(()))
        })
        .on(DispatchOutbound, |message: DispatchMessage, inbound: InboundEvent| async move {
            tracing::debug!(event = %inbound.event_id, channel = %message.channel, "message staged");
            message.stage();
            Ok(Some(true))
        })
        .on(OnError, |error: ErrorReport, notice: NoticeRequest| async move {
            notice.request(format!("Sorry, something went wrong: {}", error.public));
            Ok(Some(()))
        });
}

async fn load_state(message: InboundEvent, session: SessionId) -> capstan_hooks::HookResult<JsonObject> {
    if let Some(lifespan) = message.extensions().get::<TurnLifespan>() {
        lifespan.open().await?;
    }
    Ok(Some(JsonObject::from_iter([(TurnState::SESSION_KEY.to_owned(), json!(session))])))
}
