//! What a run may reach outside of its conversation.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::PlatformApi;
use capstan_protocol::{ActionRequest, ApiError};
use serde_json::Value;

use crate::runs::run::Run;

/// The platform that the run's event came from.
pub(super) struct PlatformHandler(pub(super) Arc<Run>);

#[async_trait]
impl PlatformApi for PlatformHandler {
    async fn call(&self, request: ActionRequest) -> Result<Value, ApiError> {
        self.0.perform_action(request).await
    }
}
