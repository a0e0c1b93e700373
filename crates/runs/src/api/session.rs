//! Methods of `session.*`: settings of the session.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{SessionChooseModel, SessionModel};
use capstan_protocol::run_api::{EmptyCall, ModelChoiceCall};
use capstan_protocol::{ApiError, ApiErrorCode, ErrorCode, ModelId, ModelOperation};
use capstan_tape::Fact;
use serde_json::{Value, json};

use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::store_api_error;
use crate::payload_size::{PayloadSize, text_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;

/// Key of the session's model in its state.
const SESSION_MODEL_KEY: &str = "model";

impl MethodHandler for SessionModel {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        RequiredPermission::AnyModel(ModelOperation::Stream)
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<Option<ModelId>, ApiError> {
        if let Some(model) = &run.model {
            return Ok(Some(model.clone()));
        }
        // A child run uses the model of its session by default.
        let state = run.environment.tapes.store().state(run.journal.session_tape()).await;
        let state = state.map_err(|error| store_api_error(&error))?;
        // A value that another version wrote and this one cannot parse counts as no choice.
        let chosen = state.get(SESSION_MODEL_KEY).and_then(Value::as_str);
        let Some(model) = chosen.and_then(|model| model.parse::<ModelId>().ok()) else { return Ok(None) };
        if !run.grant().may.models.allows(ModelOperation::Stream, &model.to_string()) {
            // The choice was made under another binding, or before this one was restricted.
            tracing::warn!(run_id = %run.id(), %model, "the chosen model is not used: the grant of the run excludes it");
            return Ok(None);
        }
        Ok(Some(model))
    }
}

impl MethodHandler for SessionChooseModel {
    fn permission(_: &Run, call: &ModelChoiceCall) -> RequiredPermission {
        match &call.model {
            Some(model) => RequiredPermission::Model(ModelOperation::Stream, model.to_string()),
            None => RequiredPermission::AnyModel(ModelOperation::Stream),
        }
    }

    fn payload(_: &Run, call: &ModelChoiceCall) -> PayloadSize {
        PayloadSize::Arguments(call.model.as_ref().map_or(0, |model| text_size(&model.to_string())))
    }

    async fn handle(run: &Arc<Run>, call: ModelChoiceCall, _: CallPermit) -> Result<(), ApiError> {
        if !run.is_command() {
            let message = "only a person can choose the model of a conversation, with ,model NAME";
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
        }
        if let Some(model) = &call.model {
            check_provider(run, model)?;
        }
        let (tape, key) = (run.journal.session_tape().clone(), SESSION_MODEL_KEY.to_owned());
        let value = call.model.map_or(Value::Null, |model| json!(model.to_string()));
        run.journal.push(Fact::PutState { tape, key, value });
        run.journal.flush().await.map_err(|error| store_api_error(&error))
    }
}

pub(super) fn check_provider(run: &Run, model: &ModelId) -> Result<(), ApiError> {
    if run.environment.model_provider(model.provider()).is_none() {
        let message = format!("there is no model provider {:?}", model.provider());
        return Err(ApiError::new(ApiErrorCode::NotFound, message).with_cause(ErrorCode::ModelUnknown));
    }
    Ok(())
}
