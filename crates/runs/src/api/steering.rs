//! Methods of `steering.*`: messages that arrive during the run.

use std::sync::Arc;

use capstan_hooks::contracts::methods::SteeringTake;
use capstan_protocol::run_api::EmptyCall;
use capstan_protocol::{ApiError, Content};
use capstan_turn::build_prompt;

use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::store_api_error;
use crate::run::Run;
use crate::run::call_limiter::CallPermit;

impl MethodHandler for SteeringTake {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        RequiredPermission::Steering
    }

    /// Ingests offered messages in order. A message with another origin, with another binding or with none gets a turn
    /// of its own, because its authority differs. So does a message whose prompt cannot be built; its turn reports the failure. Later messages
    /// are not ingested before it.
    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<Vec<Content>, ApiError> {
        let mut prompts = Vec::new();
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
            match build_prompt(&run.environment.hooks, &offered.inbound, &offered.session, &run.state).await {
                Ok(prompt) if run.steering.ingest(&offered.key) => {
                    let prompt = prompt.0.as_ref().clone();
                    run.ingest_steered(&offered.key, prompt.clone());
                    prompts.push(prompt);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot ingest a message into a run");
                    break;
                }
            }
        }
        if !prompts.is_empty() {
            run.journal.flush().await.map_err(|error| store_api_error(&error))?;
        }
        Ok(prompts)
    }
}
