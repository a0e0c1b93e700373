//! What is kept for the session, as a run may use it.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::SessionApi;
use capstan_protocol::{ApiError, ApiErrorCode, ErrorCode, ModelId};
use capstan_tape::Fact;
use serde_json::{Value, json};

use super::store_api_error;
use crate::runs::run::Run;

/// The key of the session's model in its state.
const SESSION_MODEL_KEY: &str = "model";

pub(super) struct SessionHandler(pub(super) Arc<Run>);

#[async_trait]
impl SessionApi for SessionHandler {
    async fn model(&self) -> Result<Option<ModelId>, ApiError> {
        let run = &self.0;
        // A child has its session's.
        let state = run.services.tapes.store().state(run.journal.session_tape()).await;
        let state = state.map_err(|error| store_api_error(&error))?;
        // What another version wrote and this one cannot read is no choice.
        Ok(state.get(SESSION_MODEL_KEY).and_then(Value::as_str).and_then(|model| model.parse().ok()))
    }

    async fn choose_model(&self, model: Option<ModelId>) -> Result<(), ApiError> {
        let run = &self.0;
        if !run.is_command() {
            let message = "only a person can choose the model of a conversation, with ,model NAME";
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
        }
        if let Some(model) = &model {
            self.check_provider(model)?;
        }
        let (tape, key) = (run.journal.session_tape().clone(), SESSION_MODEL_KEY.to_owned());
        let value = model.map_or(Value::Null, |model| json!(model.to_string()));
        run.journal.push(Fact::PutState { tape, key, value });
        run.flush().await.map_err(|error| store_api_error(&error))
    }
}

impl SessionHandler {
    fn check_provider(&self, model: &ModelId) -> Result<(), ApiError> {
        if self.0.services.model_provider(model.provider()).is_none() {
            let message = format!("there is no model provider {:?}", model.provider());
            return Err(ApiError::new(ApiErrorCode::NotFound, message).with_cause(ErrorCode::ModelUnknown));
        }
        Ok(())
    }
}
