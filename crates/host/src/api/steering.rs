//! Messages that came meanwhile, as a run may take them in.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::SteeringApi;
use capstan_protocol::{ApiError, Content};
use capstan_turn::build_prompt;

use super::store_failed;
use crate::runs::run::Run;

pub(super) struct Steered(pub(super) Arc<Run>);

#[async_trait]
impl SteeringApi for Steered {
    /// A message whose prompt cannot be built is left for a turn of its own, which will say so; what came after it is
    /// left with it.
    async fn take(&self) -> Result<Vec<Content>, ApiError> {
        let run = &self.0;
        let mut prompts = Vec::new();
        while let Some(offered) = run.steering.first() {
            match build_prompt(&run.services.hooks, &offered.inbound, &offered.session, &run.state).await {
                Ok(prompt) if run.steering.take(&offered.key) => {
                    let prompt = prompt.0.as_ref().clone();
                    run.take_in_steered(&offered.key, prompt.clone());
                    prompts.push(prompt);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "a message could not be taken into a run");
                    break;
                }
            }
        }
        if !prompts.is_empty() {
            run.flush().await.map_err(|error| store_failed(&error))?;
        }
        Ok(prompts)
    }
}
