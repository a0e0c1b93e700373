//! Methods of `steering.*`: messages that arrive during the run.

use std::sync::Arc;

use capstan_hooks::contracts::SteeredMessage;
use capstan_hooks::contracts::methods::{SteeringPull, SteeringTake};
use capstan_protocol::run_api::{EmptyCall, MessageEvent};
use capstan_protocol::{ApiError, Content};
use capstan_turn::build_prompt;

use super::history::message_event;
use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::store_api_error;
use crate::run::Run;
use crate::run::call_limiter::CallPermit;
use crate::steering::OfferedEvent;

impl MethodHandler for SteeringTake {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        RequiredPermission::Steering
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<Vec<Content>, ApiError> {
        Ok(ingest_offered(run).await?.into_iter().map(|message| message.prompt).collect())
    }
}

impl MethodHandler for SteeringPull {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        RequiredPermission::Steering
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<Vec<SteeredMessage>, ApiError> {
        ingest_offered(run).await
    }
}

/// Ingests offered messages in order. A message with another origin, with another binding or with none gets a turn of
/// its own, because its authority differs. So does a message whose prompt cannot be built; its turn reports the failure.
/// Later messages are not ingested before it.
async fn ingest_offered(run: &Run) -> Result<Vec<SteeredMessage>, ApiError> {
    let mut messages = Vec::new();
    while let Some(offered) = run.steering.next_offered() {
        if offered.inbound.origin() != run.origin {
            break;
        }
        match run.environment.bindings.resolve(&offered.inbound, offered.own_binding.as_ref()).await {
            Ok(binding) if binding.as_ref() == Some(&run.binding) => {}
            Ok(_) => break,
            Err(error) => {
                tracing::warn!(%error, "cannot resolve the binding of a message");
                break;
            }
        }
        let (inbound, session) = (&offered.inbound, &offered.session);
        let tools = run.grant().may.tools.clone().into();
        match build_prompt(&run.environment.hooks, inbound, session, &run.state, tools, &run.hook_turn).await {
            Ok(prompt) if run.steering.ingest(&offered.key) => {
                let prompt = prompt.0.as_ref().clone();
                run.ingest_steered(&offered.key, prompt.clone());
                // The tape has the built prompt, the runner of a binding that withholds it the message itself.
                let prompt = if run.grant().may.prompt { prompt } else { offered.inbound.input.content() };
                let reads_parts = run.runner.descriptor.capabilities.multimodal_input;
                let prompt = if reads_parts { prompt } else { prompt.in_words() };
                messages.push(SteeredMessage { prompt, event: steered_event(run, &offered).await? });
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot ingest a message into a run");
                break;
            }
        }
    }
    if !messages.is_empty() {
        run.journal.flush().await.map_err(|error| store_api_error(&error))?;
    }
    Ok(messages)
}

/// Event of a steered message. Its attachments are named by the entry that records it.
async fn steered_event(run: &Run, offered: &OfferedEvent) -> Result<MessageEvent, ApiError> {
    if offered.inbound.input.contents.is_empty() {
        return Ok(MessageEvent::from(&*offered.inbound));
    }
    let record = run.environment.tapes.store().inbox_record(&offered.key).await;
    let record = record.map_err(|error| store_api_error(&error))?;
    Ok(match record {
        Some(record) => message_event(run, record.entry, &offered.inbound),
        None => MessageEvent::from(&*offered.inbound),
    })
}
