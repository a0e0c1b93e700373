//! Methods of `platform.*`: the platform that the run's event came from.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{PlatformCall, PlatformList};
use capstan_protocol::run_api::EmptyCall;
use capstan_protocol::{ActionRequest, ActionSpec, ApiError};
use serde_json::Value;

use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use crate::actions;
use crate::payload_size::{PayloadSize, json_size, text_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;

impl MethodHandler for PlatformCall {
    fn permission(run: &Run, request: &ActionRequest) -> RequiredPermission {
        RequiredPermission::Platform(request.action.clone(), actions::action_denial(run, &request.action))
    }

    fn payload(_: &Run, request: &ActionRequest) -> PayloadSize {
        PayloadSize::Arguments(text_size(&request.action) + json_size(&request.arguments))
    }

    async fn handle(run: &Arc<Run>, request: ActionRequest, _: CallPermit) -> Result<Value, ApiError> {
        actions::perform_action(run, request).await
    }
}

impl MethodHandler for PlatformList {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        RequiredPermission::Nothing
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<Vec<ActionSpec>, ApiError> {
        Ok(actions::permitted_actions(run))
    }
}
