//! Models whose calls have an end, also when nobody waits for it any more.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::{ModelCall, ModelEvent, ModelResultStream, ModelsApi};
use capstan_hooks::points::AfterLlmCall;
use capstan_protocol::{ApiError, ModelId, ModelRequest};
use futures::StreamExt as _;

use super::models::ModelsHandler;
use crate::runs::run::Run;

/// Models that keep in mind which calls have begun. A call that its runner drops, as a cancelled run does, stays open and
/// is [told](super::open_calls::tell) of at the end of the run.
pub(super) struct TrackedModels {
    pub(super) models: ModelsHandler,
    pub(super) run: Arc<Run>,
}

#[async_trait]
impl ModelsApi for TrackedModels {
    async fn stream(&self, call: ModelCall) -> Result<ModelResultStream, ApiError> {
        // Whole requests are only kept where somebody wants to see them.
        if !self.run.services.hooks.is_implemented::<AfterLlmCall>() {
            return self.models.stream(call, |_| {}).await;
        }
        let number = self.run.progress().open_calls.begin_model(self.initial_request(&call));
        let run = Arc::clone(&self.run);
        let end = move || run.progress().open_calls.end(number);
        let sending =
            |request: &ModelRequest| self.run.progress().open_calls.update_model_request(number, request.clone());
        let results = self.models.stream(call, sending).await.inspect_err(|_| end())?;
        let is_end = |event: &Result<ModelEvent, ApiError>| matches!(event, Ok(ModelEvent::Stop) | Err(_));
        Ok(results
            .inspect(move |event| {
                if is_end(event) {
                    end();
                }
            })
            .boxed())
    }

    fn default_model(&self) -> ModelId {
        self.models.default_model()
    }
}

impl TrackedModels {
    /// The request as the runner makes it: what a call is known by until it is sent.
    fn initial_request(&self, call: &ModelCall) -> ModelRequest {
        ModelRequest {
            model: call.model.clone().unwrap_or_else(|| self.models.default_model()),
            system: call.system.clone(),
            messages: call.messages.clone(),
            tools: call.tools.clone(),
            options: self.run.services.options.model_options.clone(),
        }
    }
}
